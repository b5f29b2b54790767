"""A listener with GSSAPI beside MIT's KDC: clients come in by their tickets, and no other way."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.common.errors import ErrorCode
from odradek.common.real_kerberos import KerberosLogin, initiate
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.wire import Wire
from tests.support.nodes.cluster import Cluster
from tests.support.nodes.kerberos import CLOCK_SKEW_S, REALM, KerberosNode, Realm, in_realm, jaas, require_kerberos
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

SERVICE = "kafka/localhost"
RULES = f"RULE:[2:$1.$2@$0](admin\\..*@{REALM})s/@.*//,DEFAULT"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


@dataclass
class Place:
    """A realm with a node, and the keytab of alice."""

    realm: Realm
    node: KerberosNode
    alice: Path
    metrics_port: int

    def login(self, principal: str = "alice", keytab: Path | None = None, service: str = "kafka") -> KerberosLogin:
        return KerberosLogin(service, principal, str(keytab or self.alice))

    def failed_count(self) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as found:
            lines = found.read().decode().splitlines()
        wanted = 'odradek_logins_failed_total{listener="EXTERNAL",mechanism="GSSAPI"} '
        return next(float(each.removeprefix(wanted)) for each in lines if each.startswith(wanted))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    require_kerberos()
    directory = tmp_path_factory.mktemp("kerberos")
    with Realm(directory / "realm") as realm, in_realm(realm.variables):
        realm.add(SERVICE, "alice", "admin/ops", "http/localhost")
        keytab = realm.keytab(SERVICE)
        port = free_port()
        node = KerberosNode(
            directory / "node",
            realm,
            keytab,
            odradek__metrics__listener=f"127.0.0.1:{port}",
            listener__name__external__sasl__kerberos__principal__to__local__rules=RULES,
        )
        with node.start():
            yield Place(realm, node, realm.keytab("alice"), port)


def say(wire: Wire, words: bytes) -> Any:
    return wire.request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=words))


def shake(place: Place, version: int = 1) -> Wire:
    wire = Wire(place.node.kerberos_port)
    assert wire.request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="GSSAPI")).error_code == 0
    return wire


def come_in(place: Place, login: KerberosLogin, choice: bytes = bytes((1, 0, 0, 0))) -> tuple[Wire, Any]:
    """Log in by requests; returns the last answer."""
    wire = shake(place)
    return wire, finish_login(wire, login, choice)


def finish_login(wire: Wire, login: KerberosLogin, choice: bytes = bytes((1, 0, 0, 0))) -> Any:
    context = initiate(login, "localhost")
    answer = say(wire, context.step(None))
    answer = say(wire, context.step(bytes(answer.auth_bytes)))
    assert context.unwrap(bytes(answer.auth_bytes)) == bytes((1, 0, 0, 0))
    return say(wire, context.wrap(choice))


def assert_refused(wire: Wire, answer: Any) -> None:
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
    assert wire.is_closed_by_peer()
    wire.close()


@pytest.mark.parametrize(
    ("principal", "acts_as", "user"),
    [
        ("alice", "", "alice"),
        ("alice", f"alice@{REALM}", "alice"),
        ("alice", "admin.ops", "alice"),
        ("admin/ops", "", "admin.ops"),
    ],
)
def test_a_client_is_who_its_ticket_says_by_the_rules(place: Place, principal: str, acts_as: str, user: str) -> None:
    keytab = place.alice if principal == "alice" else place.realm.keytab(principal)
    wire, answer = come_in(place, place.login(principal, keytab), bytes((1, 0, 0, 0)) + acts_as.encode())
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    made = wire.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert made.principal_name == user
    wire.close()


@pytest.mark.parametrize("choice", [b"\2\0\0\0", b"\0\0\0\0", b"\1", b""])
def test_a_security_layer_is_refused(place: Place, choice: bytes) -> None:
    assert_refused(*come_in(place, place.login(), choice))


def test_messages_that_are_no_tickets_are_refused_and_counted(place: Place) -> None:
    before = place.failed_count()
    token = initiate(place.login(), "localhost").step(None)
    for words in (b"", b"garbage", bytes(5000), token + bytes(65_536), token[:-1], token[:-40] + bytes(40), token[:60]):
        wire = shake(place)
        assert_refused(wire, say(wire, words))
    assert place.failed_count() == before + 7
    for reason in ("the message is none of Kerberos, or is damaged", "a message is longer than 65536 bytes"):
        assert reason in place.node.log_text()


def test_a_ticket_that_was_shown_is_no_ticket(place: Place) -> None:
    token = initiate(place.login(), "localhost").step(None)
    first, second = shake(place), shake(place)
    assert say(first, token).error_code == 0
    first.close()
    assert_refused(second, say(second, token))
    eventually(lambda: "the request is a replay of one that was seen" in place.node.log_text())


def test_other_clients_are_served_while_kerberos_blocks(place: Place) -> None:
    """The cache of replays is a file with a lock, and this is who holds it for a while."""
    first, _ = come_in(place, place.login())
    first.close()
    context = initiate(place.login(), "localhost")
    with shake(place) as wire, Wire(place.node.port) as other:
        with place.realm.replays.open("r+b") as replays:
            fcntl.lockf(replays, fcntl.LOCK_EX)
            asked = SaslAuthenticateRequest(auth_bytes=context.step(None))
            wire.send(ApiKey.SASL_AUTHENTICATE, 2, asked)
            for _ in range(3):
                assert other.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).error_code == 0
            assert not select.select([wire.socket], [], [], 0.1)[0]
        assert wire.receive(ApiKey.SASL_AUTHENTICATE, 2).error_code == 0


def test_a_ticket_for_another_service_is_refused(place: Place) -> None:
    wire = shake(place)
    assert_refused(wire, say(wire, initiate(place.login(service="http"), "localhost").step(None)))
    assert "the ticket is for another service" in place.node.log_text()


def test_a_ticket_that_has_expired_is_refused(place: Place) -> None:
    cache = place.realm.tickets("alice", place.alice, lifetime="2s")
    token = initiate(KerberosLogin(ticket_cache=str(cache)), "localhost").step(None)
    # A while after its end: krb5.conf allows for some difference of clocks. It can be shown once only.
    ends_s = time.time() + 2 + CLOCK_SKEW_S
    eventually(lambda: time.time() > ends_s + 1)
    wire = shake(place)
    assert_refused(wire, say(wire, token))
    assert "the ticket has expired" in place.node.log_text()


def test_a_login_after_an_old_handshake(place: Place) -> None:
    """Its messages come without requests around them."""

    def bare(words: bytes) -> bytes:
        wire.socket.sendall(struct.pack(">i", len(words)) + words)
        return wire.receive_frame()

    with shake(place, 0) as wire:
        context = initiate(place.login(), "localhost")
        offer = bare(context.step(bare(context.step(None))))
        assert bare(context.wrap(context.unwrap(offer))) == b""
        assert wire.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).error_code == 0
    with shake(place, 0) as wire:
        wire.socket.sendall(struct.pack(">i", 7) + b"garbage")
        assert wire.is_closed_by_peer()


def test_a_stock_client_writes_and_reads(place: Place) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    create_topic(place.node.bootstrap, "t")
    settings = {
        "bootstrap_servers": place.node.kerberos_bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }

    async def round_trip() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("t", b"1")
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **settings) as consumer:
            return bytes((await asyncio.wait_for(consumer.getone(), 60)).value)

    cache = place.realm.tickets("alice", place.alice)
    with in_realm({"KRB5CCNAME": f"FILE:{cache}"}):
        assert asyncio.run(round_trip()) == b"1"
    assert [each.value() for each in read_all(place.node.bootstrap, "t")] == [b"1"]


def test_a_client_logs_in_again_as_the_same_user(place: Place) -> None:
    keytab = place.realm.keytab("admin/ops")
    for principal, of, code in (
        ("alice", place.alice, ErrorCode.NONE),
        ("admin/ops", keytab, ErrorCode.SASL_AUTHENTICATION_FAILED),
    ):
        wire, answer = come_in(place, place.login())
        assert answer.error_code == 0
        assert wire.request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI")).error_code == 0
        assert finish_login(wire, place.login(principal, of)).error_code == code
        wire.close()
    assert "Cannot change principals during re-authentication" in place.node.log_text()


def test_while_the_kdc_is_down_those_with_tickets_come_in(place: Place, tmp_path: Path) -> None:
    cache = place.realm.tickets("alice", place.alice)
    come_in(place, KerberosLogin(ticket_cache=str(cache)))[0].close()  # the cache has a ticket for the service now
    place.realm.add("late")
    config = command_config(tmp_path, jaas("late", place.realm.keytab("late")))
    place.realm.stop()
    try:
        wire, answer = come_in(place, KerberosLogin(ticket_cache=str(cache)))
        assert answer.error_code == 0
        wire.close()
        ran = odradek(place.node.kerberos_bootstrap, "cluster", "id", "--command-config", config, code=None)
        assert "Kerberos gives late no ticket for kafka@localhost: " in ran.err and "KDC" in ran.err, ran.err
        assert len(ran.err.splitlines()) == 1
    finally:
        place.realm.start()
    odradek(place.node.kerberos_bootstrap, "cluster", "id", "--command-config", config)


def command_config(directory: Path, entry: str, **settings: str) -> Path:
    path = directory / "client.properties"
    lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": entry} | settings
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def test_our_commands_log_in_by_keytab_or_ticket(place: Place, tmp_path: Path) -> None:
    config = command_config(tmp_path, jaas(f"alice@{REALM}", place.alice))
    odradek(place.node.kerberos_bootstrap, "cluster", "id", "--command-config", config)
    cache = place.realm.tickets("alice", place.alice)
    entry = "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true"
    config = command_config(tmp_path, f'{entry} ticketCache="{cache}" serviceName="kafka";')
    odradek(place.node.kerberos_bootstrap, "cluster", "id", "--command-config", config)


@pytest.mark.parametrize(
    ("principal", "service", "said"),
    [
        ("alice", "nowhere", "no ticket for nowhere@localhost: Server nowhere/localhost@ODRADEK.TEST not found"),
        ("bob", "kafka", "Kerberos gives bob no ticket for kafka@localhost"),
        ("alice", "http", f"refused alice: {REFUSED}"),
    ],
)
def test_our_commands_say_why_they_are_refused(
    place: Place, principal: str, service: str, said: str, tmp_path: Path
) -> None:
    config = command_config(tmp_path, jaas(principal, place.alice), **{"sasl.kerberos.service.name": service})
    ran = odradek(place.node.kerberos_bootstrap, "cluster", "id", "--command-config", config, code=None)
    assert ran.code != 0
    assert said in ran.err, ran.err
    assert len(ran.err.splitlines()) == 1


def test_produce_says_that_its_library_has_no_kerberos(place: Place, tmp_path: Path) -> None:
    config = command_config(tmp_path, jaas("alice", place.alice))
    ran = odradek(place.node.kerberos_bootstrap, "produce", "t", "--command-config", config, code=None)
    assert "the librdkafka of confluent-kafka's wheel has no GSSAPI" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_nodes_log_in_to_each_other(place: Place, tmp_path: Path) -> None:
    """They log in to brokers and to controllers, each with the one keytab of its listeners."""
    place.realm.add("kafka/127.0.0.1")
    entry = jaas("kafka/127.0.0.1", place.realm.keytab("kafka/127.0.0.1"))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": entry,
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.plaintext.sasl.enabled.mechanisms": "GSSAPI,PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} user_admin="secret";',
    }
    client: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    client |= {"sasl_username": "admin", "sasl_password": "secret"}
    with Cluster(tmp_path, settings=settings) as cluster:
        admin = AdminClient(
            {key.replace("_", "."): text for key, text in client.items()}
            | {"bootstrap.servers": cluster.bootstrap_servers}
        )
        admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "3"})])["t"].result(60)
        produce_all(cluster.bootstrap_servers, "t", [(None, b"1")], acks="all", **client)
        assert [each.value() for each in read_all(cluster.bootstrap_servers, "t", **client)] == [b"1"]


def test_a_key_that_is_changed_in_the_keytab_is_used_at_once(place: Place) -> None:
    """Tickets for the old key are refused, which says so; a node does not start with a keytab without its key."""
    old = initiate(place.login(), "localhost").step(None)
    place.realm.keytab(SERVICE)
    wire = shake(place)
    assert_refused(wire, say(wire, old))
    assert "the keytab has no key of the" in place.node.log_text()
    cache = place.realm.tickets("alice", place.alice)
    ticket = KerberosLogin(ticket_cache=str(cache))
    wire, answer = come_in(place, ticket)
    assert answer.error_code == 0
    wire.close()
