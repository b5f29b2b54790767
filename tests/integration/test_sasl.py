"""Listeners with SASL: stock clients log in by each mechanism, others do not, and before a login little is served."""

from __future__ import annotations

import asyncio
import base64
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from odradek.client.connection import connect
from odradek.client.sasl import Credentials
from odradek.client.security import OutgoingSecurity
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealNetwork, RealRandom
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from tests.support.clients.api_calls import Calls, batch, fresh_name, produce_request
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.logins import log_in_as, say, shake
from tests.support.clients.quotas import quotas_set
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import eventually

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret" user_admin="admin-secret" user_alice="plain-secret";'
)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PASSWORDS = {"PLAIN": "plain-secret", "SCRAM-SHA-256": "secret-256", "SCRAM-SHA-512": "secret-512"}
DELAY_MS = 100


class SaslNode(Node):
    """A node with a listener in plain text, and one with SASL."""

    def __init__(self, directory: Path, **settings: object) -> None:
        super().__init__(directory)
        self.sasl_port = free_port()
        plain = f"CONTROLLER://127.0.0.1:{self.controller_port},PLAINTEXT://127.0.0.1:{self.port}"
        self.overrides |= {
            # The order matters: a wait for the last one finds all.
            "listeners": f"EXTERNAL://127.0.0.1:{self.sasl_port},{plain}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.external.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.external.plain.sasl.jaas.config": PLAIN_USERS,
            "listener.name.external.scram-sha-256.sasl.jaas.config": SCRAM,
            "connection.failed.authentication.delay.ms": DELAY_MS,
        } | {key.replace("__", "."): value for key, value in settings.items()}

    @property
    def sasl_bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def add_alice(self) -> None:
        """Give a user both kinds of SCRAM credentials."""
        kinds = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(kind, 4096), PASSWORDS[name].encode())
            for name, kind in kinds.items()
        ]
        client = AdminClient({"bootstrap.servers": self.bootstrap})  # one that is collected gives up
        for future in client.alter_user_scram_credentials(wanted).values():
            future.result(60)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    node = SaslNode(
        tmp_path_factory.mktemp("sasl"), odradek__metrics__listener=f"127.0.0.1:{free_port()}", broker__rack="a"
    )
    with node.start():
        node.add_alice()
        yield node


def settings(mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[mechanism] if password is None else password,
    }


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_librdkafka_logs_in(node: SaslNode, mechanism: str) -> None:
    topic = f"by-{mechanism}"
    create_topic(node.bootstrap, topic)
    given = {key.replace(".", "_"): value for key, value in settings(mechanism).items()}
    produce_all(node.sasl_bootstrap, topic, [(None, b"1"), (None, b"2")], **given)
    assert [each.value() for each in read_all(node.sasl_bootstrap, topic, **given)] == [b"1", b"2"]


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_aiokafka_logs_in(node: SaslNode, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer

    create_topic(node.bootstrap, f"aio-{mechanism}")

    async def produce() -> Any:
        async with AIOKafkaProducer(
            bootstrap_servers=node.sasl_bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORDS[mechanism],
        ) as producer:
            return await producer.send_and_wait(f"aio-{mechanism}", b"1")

    assert asyncio.run(produce()).offset == 0


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_our_own_command_logs_in(node: SaslNode, mechanism: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings(mechanism).items()))
    odradek(node.sasl_bootstrap, "cluster", "id", "--command-config", config)


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(node: SaslNode, mechanism: str) -> None:
    texts = set()
    for name in ("unknown", "alice"):
        with Wire(node.sasl_port) as wire:
            began = time.monotonic()
            answer = log_in(wire, mechanism, name, "not the password")
            assert time.monotonic() - began >= DELAY_MS / 1000
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed_by_peer()
            texts.add(answer.error_message)
    assert len(texts) == 1
    assert "not the password" not in node.log_text()


def test_a_stock_client_hears_why_it_is_refused(node: SaslNode) -> None:
    heard: list[KafkaError] = []
    given = settings("SCRAM-SHA-256", password="wrong") | {"error_cb": heard.append, "log_level": 0}
    client = AdminClient({"bootstrap.servers": node.sasl_bootstrap, **given})
    eventually(lambda: client.poll(0.1) and [each for each in heard if each.code() == KafkaError._AUTHENTICATION])


def log_in(
    wire: Wire,
    mechanism: str,
    user: str = "alice",
    password: str | None = None,
    *,
    version: int = 2,
    by_token: bool = False,
) -> Any:
    """Log in by requests; returns the last answer."""
    secret = PASSWORDS[mechanism] if password is None else password
    return log_in_as(wire, Credentials(mechanism, user, secret, RealRandom(), by_token), version)


def test_before_a_login_only_what_it_needs_is_served(node: SaslNode) -> None:
    with Wire(node.sasl_port) as wire:
        assert ApiKey.METADATA in {
            each.api_key for each in wire.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).api_keys
        }
        wire.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
        assert wire.is_closed_by_peer()
    for key, version, request in (
        (ApiKey.METADATA, 12, MetadataRequest(topics=[])),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0plain-secret")),
    ):
        with Wire(node.sasl_port) as wire:
            wire.send(key, version, request)
            assert wire.is_closed_by_peer()
    with Wire(node.sasl_port) as wire:
        shake(wire, "PLAIN")
        assert wire.request(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.is_closed_by_peer()


def test_requests_behind_a_failed_login_are_not_served(node: SaslNode) -> None:
    with Wire(node.sasl_port) as wire:
        shake(wire, "PLAIN")
        wire.send(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        wire.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
        answer = wire.receive(ApiKey.SASL_AUTHENTICATE, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_peer()


def test_a_mechanism_that_is_not_offered(node: SaslNode) -> None:
    with Wire(node.sasl_port) as wire:
        answer = shake(wire, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert wire.is_closed_by_peer()


def test_a_listener_without_sasl_says_so(node: SaslNode) -> None:
    with Wire(node.port) as wire:
        assert shake(wire, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert say(wire, b"\0alice\0plain-secret").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_bare_messages_after_an_old_handshake(node: SaslNode) -> None:
    for password, is_let_in in (("plain-secret", True), ("wrong", False)):
        with Wire(node.sasl_port) as wire:
            assert shake(wire, "PLAIN", version=0).error_code == 0
            message = f"\0alice\0{password}".encode()
            wire.socket.sendall(struct.pack(">i", len(message)) + message)
            if is_let_in:
                assert wire.receive_frame() == b""
                assert wire.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).error_code == 0
            else:
                assert wire.is_closed_by_peer()


@pytest.mark.parametrize("message", [b"\0alice\0plain\0secret", b"", bytes(1000), b"\xff" * 10])
def test_messages_that_are_none_are_refused(node: SaslNode, message: bytes) -> None:
    for mechanism in PASSWORDS:
        with Wire(node.sasl_port) as wire:
            shake(wire, mechanism)
            assert say(wire, message).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed_by_peer()


def test_a_frame_above_the_limit_ends_the_connection_before_it_is_read(node: SaslNode) -> None:
    with Wire(node.sasl_port) as wire:
        wire.socket.sendall(struct.pack(">i", 524_289))
        assert wire.is_closed_by_peer()
    assert "above sasl.server.max.receive.size=524288" in node.log_text()
    with Wire(node.sasl_port) as wire:
        log_in(wire, "PLAIN")
        wire.socket.sendall(struct.pack(">i", 524_289))
        wire.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            wire.socket.recv(1)


def test_a_client_logs_in_again_as_the_same_user(node: SaslNode) -> None:
    with Wire(node.sasl_port) as wire:
        assert log_in(wire, "SCRAM-SHA-256").session_lifetime_ms == 0
        assert log_in(wire, "SCRAM-SHA-256").error_code == 0
        assert wire.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).error_code == 0
    with Wire(node.sasl_port) as wire:
        log_in(wire, "PLAIN")
        answer = log_in(wire, "PLAIN", "admin", "admin-secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_peer()


def test_logins_are_counted(node: SaslNode) -> None:
    import urllib.request

    def counted(name: str) -> float:
        with urllib.request.urlopen(f"http://{node.overrides['odradek.metrics.listener']}/metrics") as page:
            text = page.read().decode()
        label = f'{name}_total{{listener="EXTERNAL",mechanism="PLAIN"}} '
        return float(next(line for line in text.splitlines() if line.startswith(label)).removeprefix(label))

    before = counted("odradek_logins"), counted("odradek_logins_failed")
    for password in ("plain-secret", "wrong"):
        with Wire(node.sasl_port) as wire:
            log_in(wire, "PLAIN", password=password)
    assert (counted("odradek_logins"), counted("odradek_logins_failed")) == (before[0] + 1, before[1] + 1)


def test_a_session_ends_without_reauthentication(tmp_path: Path) -> None:
    """A stock client does, on the same connection; one that goes on without is closed."""
    with SaslNode(tmp_path, listener__name__external__connections__max__reauth__ms=2000).start() as node:
        create_topic(node.bootstrap, "t")
        client = AdminClient({"bootstrap.servers": node.sasl_bootstrap, **settings("PLAIN")})
        with Wire(node.sasl_port) as wire:
            assert log_in(wire, "PLAIN").session_lifetime_ms == 2000
            assert log_in(wire, "PLAIN", version=0).error_code == 0
            began = time.monotonic()

            def ended() -> bool:
                assert "t" in client.list_topics(timeout=60).topics
                return time.monotonic() - began > 2.1

            eventually(ended)
            wire.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
            assert wire.is_closed_by_peer()
        assert "the session of 'alice' ended" in node.log_text()


def test_our_own_client_takes_another_connection_before_its_session_ends(tmp_path: Path) -> None:
    """A connection with an open request is kept until the response is there."""
    asked = MetadataRequest(topics=[])
    who = Credentials("PLAIN", "alice", PASSWORDS["PLAIN"], RealRandom())

    async def use(port: int) -> None:
        security = OutgoingSecurity(sasl=lambda: who)
        made = await connect(RealNetwork(), "127.0.0.1", port, client_id="t", timeout_s=60, security=security)
        assert made.is_open
        while not made.session_is_ending:
            await made.request(asked, MetadataResponse, timeout_s=60)
        waiting = made.send(asked)
        assert made.is_open
        await asyncio.wait([waiting])
        assert not made.is_open

    with SaslNode(tmp_path, listener__name__external__connections__max__reauth__ms=1000).start() as node:
        asyncio.run(use(node.sasl_port))


def test_a_client_logs_in_by_a_delegation_token(tmp_path: Path) -> None:
    """The owner creates, lists, renews and expires it; a client that logged in with it may not create another one."""
    settings: dict[str, object] = {"delegation__token__secret__key": "of all nodes"}
    with SaslNode(tmp_path, **settings).start() as node, Wire(node.sasl_port) as owner:
        log_in(owner, "PLAIN")
        renewer = CreatableRenewers(principal_type="User", principal_name="admin")
        made = owner.request(
            ApiKey.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=600_000)
        )
        assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "alice")
        password = base64.b64encode(bytes(made.hmac)).decode()
        with Wire(node.sasl_port) as holder:
            answer = log_in(holder, "SCRAM-SHA-256", made.token_id, password, by_token=True)
            assert answer.error_code == ErrorCode.NONE
            assert 0 < answer.session_lifetime_ms <= 600_000
            refused = holder.request(
                ApiKey.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest(max_lifetime_ms=-1)
            )
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for by_token, words in ((False, password), (True, "wrong")):
            with Wire(node.sasl_port) as other:
                answer = log_in(other, "SCRAM-SHA-256", made.token_id, words, by_token=by_token)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with Wire(node.sasl_port) as admin:
            log_in(admin, "PLAIN", "admin", "admin-secret")
            (shown,) = admin.request(
                ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(owners=None)
            ).tokens
            assert bytes(shown.hmac) == bytes(made.hmac)
            renewed = admin.request(ApiKey.RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest(hmac=made.hmac))
            assert renewed.expiry_timestamp_ms <= made.max_timestamp_ms
            (old,) = admin.request(
                ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, DescribeDelegationTokenRequest(owners=None)
            ).tokens
            assert old.token_id == shown.token_id
            unknown = admin.request(ApiKey.RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest(hmac=b"unknown"))
            assert unknown.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        ended = owner.request(
            ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        )
        assert ended.error_code == ErrorCode.NONE

        def is_over() -> bool:
            with Wire(node.sasl_port) as late:
                words = log_in(late, "SCRAM-SHA-256", made.token_id, password, by_token=True)
                return bool(words.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED)

        eventually(is_over)


def test_an_anonymous_client_gets_no_delegation_token(node: SaslNode) -> None:
    with Wire(node.port) as wire:
        refused = wire.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with Wire(node.sasl_port) as wire:
        log_in(wire, "PLAIN")
        off = wire.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert off.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.fixture
def quota_of_alice(node: SaslNode) -> Iterator[None]:
    """Less than one request."""
    with quotas_set(node.port, {"user": "alice"}, producer_byte_rate=1000):
        yield


@pytest.mark.usefixtures("quota_of_alice")
@pytest.mark.parametrize(
    ("user", "password", "waits"), [("alice", "plain-secret", True), ("admin", "admin-secret", False)]
)
def test_a_quota_is_that_of_the_user_who_logs_in(node: SaslNode, user: str, password: str, waits: bool) -> None:
    """Before its login a client is `User:ANONYMOUS`, with the same client id."""
    topic = fresh_name()
    create_topic(node.bootstrap, topic)
    with Calls(node.sasl_port, client_id="app") as calls:
        calls.request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        log_in_as(calls, Credentials("PLAIN", user, password, RealRandom()))
        answer = calls.request(ApiKey.PRODUCE, 9, produce_request(topic, batch(bytes(5000))))
    assert (answer.throttle_time_ms > 0) is waits
