"""Keys, mechanisms and users of listeners that are changed while a node runs, and those that it refuses to go by."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.sasl import Credentials
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealRandom
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import alter_configs_request as whole
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.security.tls.development import DAY
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import Calls
from tests.support.clients.logins import log_in_as, shake
from tests.support.clients.wire import Wire
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

SET, DELETE, APPEND, SUBTRACT = range(4)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OF_SASL, OF_TLS = "listener.name.logins.", "listener.name.secure."
USERS = f"{OF_SASL}plain.sasl.jaas.config"
MECHANISMS = f"{OF_SASL}sasl.enabled.mechanisms"
LOCATION, PROTOCOLS = f"{OF_TLS}ssl.keystore.location", f"{OF_TLS}ssl.enabled.protocols"


class Secured:
    """A node with a listener for logins, by which brokers log in too, one with TLS, and one that is plain."""

    def __init__(self, directory: Path) -> None:
        self.certificates = Certificates(directory / "certificates")
        keys = directory / "secret.keys"
        keys.write_text(base64.b64encode(bytes(range(32))).decode())
        self.plain, self.logins, self.tls, controller = (free_port() for _ in range(4))
        self.thread = NodeThread(1, NetworkLinks())
        settings = {
            "log.dirs": directory / "data",
            "listeners": f"LOGINS://127.0.0.1:{self.logins},SECURE://127.0.0.1:{self.tls},"
            f"CONTROLLER://127.0.0.1:{controller},PLAINTEXT://127.0.0.1:{self.plain}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL,"
            "LOGINS:SASL_PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "inter.broker.listener.name": "LOGINS",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            MECHANISMS: "PLAIN",
            USERS: f'{PLAIN} username="node" password="n" user_node="n" user_alice="a";',
            "odradek.secret.key.file": keys,
            "connection.failed.authentication.delay.ms": 0,
            **self.certificates.server(OF_TLS, self.certificates.issue("first")),
        }
        self.thread.begin(None, [f"{key}={value}" for key, value in settings.items()]).result(120)

    def change(self, *changes: tuple[str, int, str | None], broker: str = "1") -> tuple[int, str]:
        """Change single settings; code and text of the answer."""
        configs = [AlterableConfig(name=key, config_operation=verb, value=value) for key, verb, value in changes]
        resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=configs)
        with Calls(self.plain) as calls:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            (answer,) = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        return answer.error_code, answer.error_message or ""

    def replace(self, **settings: str) -> tuple[int, str]:
        """Replace all dynamic settings; code and text of the answer."""
        configs = [whole.AlterableConfig(name=key, value=value) for key, value in settings.items()]
        resource = whole.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        with Calls(self.plain) as calls:
            (answer,) = calls.request(
                ApiKey.ALTER_CONFIGS, 2, whole.AlterConfigsRequest(resources=[resource])
            ).responses
        return answer.error_code, answer.error_message or ""

    def shown(self) -> str:
        """The name in the certificate of a new connection."""
        return str(dict(part[0] for part in self._certificate()["subject"])["commonName"])

    def serial(self) -> object:
        """The number of the certificate of a new connection."""
        return self._certificate()["serialNumber"]

    def _certificate(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        with (
            socket.create_connection(("127.0.0.1", self.tls), 30) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
        ):
            certificate = secured.getpeercert()
        assert certificate is not None
        return dict(certificate)

    def logs_in(self, user: str, password: str) -> bool:
        with Wire(self.logins) as wire:
            answer = log_in_as(wire, Credentials("PLAIN", user, password, RealRandom()))
            return bool(answer.error_code == ErrorCode.NONE)

    def offered(self) -> list[str]:
        """The mechanisms that a client may choose from."""
        with Wire(self.logins) as wire:
            mechanisms: list[str] = shake(wire, "NONE").mechanisms
        return mechanisms


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    node = Secured(tmp_path_factory.mktemp("node"))
    try:
        yield node
    finally:
        node.thread.stop()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (LOCATION, "/nowhere.pem", "No such file or directory"),
        (f"{OF_TLS}ssl.keystore.type", "PKCS12", "PKCS12"),
        (f"{OF_TLS}ssl.truststore.location", "/nowhere.pem", "No such file or directory"),
        (f"{OF_TLS}ssl.cipher.suites", "TLS_NO_SUCH", "OpenSSL has none of these suites"),
        (PROTOCOLS, "TLSv1.3,TLSv9", "TLSv9 is not served"),
        (MECHANISMS, "PLAIN,DIGEST-MD5", "DIGEST-MD5 is not served"),
        (USERS, "no entry", "must be one entry"),
        (USERS, 'com.sun.security.auth.module.LdapLoginModule required user_alice="a";', "the login module must be"),
        (USERS, f'{PLAIN} user_alice="a";', "needs username and password, by which this node logs in to others"),
        ("sasl.mechanism.inter.broker.protocol", "NONE", "sasl.mechanism.inter.broker.protocol=NONE: must be PLAIN"),
    ],
)
def test_a_value_that_the_broker_could_not_use_is_refused(node: Secured, key: str, value: str, reason: str) -> None:
    for code, text in (node.change((key, SET, value)), node.replace(**{key: value})):
        assert code == ErrorCode.INVALID_REQUEST and reason in text
        assert value == "no entry" or "user_alice" not in text
    assert node.shown() == "first" and node.offered() == ["PLAIN"] and node.logs_in("alice", "a")


def test_versions_of_tls_are_added_and_taken_away(node: Secured) -> None:
    code, text = node.change((PROTOCOLS, APPEND, "TLSv9"))
    assert code == ErrorCode.INVALID_REQUEST and "TLSv9 is not served" in text
    code, text = node.change((PROTOCOLS, SUBTRACT, "TLSv1.2,TLSv1.3"))
    assert code == ErrorCode.INVALID_REQUEST and "must name one of" in text


def test_a_keystore_of_another_broker_is_looked_at_there(node: Secured) -> None:
    code, text = node.change((LOCATION, SET, "/b.pem"), broker="2")
    assert code == ErrorCode.INVALID_REQUEST
    assert text.startswith("Unexpected broker id, expected 1, but received 2")


def test_another_keystore_is_shown_and_so_is_the_first_again(node: Secured) -> None:
    renewed = node.certificates.issue("first", file="renewed")
    before = node.serial()
    assert node.change((LOCATION, SET, str(renewed))) == (ErrorCode.NONE, "")
    eventually(lambda: node.serial() != before)
    assert node.replace() == (ErrorCode.NONE, "")
    eventually(lambda: node.serial() == before)


@pytest.mark.parametrize(
    ("name", "hosts", "days", "reason"),
    [
        ("second", ["127.0.0.1"], 1, "is of CN=second, the present one of CN=first; ssl.allow.dn.changes=true"),
        ("first", ["localhost"], 1, "lacks 127.0.0.1, which the present one names; ssl.allow.san.changes=true"),
        ("first", ["127.0.0.1"], -1, "and not now"),
    ],
)
def test_a_certificate_of_another_name_or_time_is_refused(
    node: Secured, name: str, hosts: list[str], days: int, reason: str
) -> None:
    """KIP-978."""
    other = node.certificates.issue(name, hosts, valid=days * DAY, file="other")
    code, text = node.change((LOCATION, SET, str(other)))
    assert code == ErrorCode.INVALID_REQUEST and reason in text


def test_users_of_plain_come_and_go(node: Secured) -> None:
    entry = f'{PLAIN} username="node" password="n2" user_node="n2" user_bob="b";'
    with Wire(node.logins) as open_before:
        assert log_in_as(open_before, Credentials("PLAIN", "alice", "a", RealRandom())).error_code == ErrorCode.NONE
        assert node.change((USERS, SET, entry)) == (ErrorCode.NONE, "")
        eventually(lambda: node.logs_in("bob", "b"))
        assert not node.logs_in("alice", "a")
        own = node.thread.broker._security.between_brokers.sasl()
        assert own is not None and own.password == "n2", "the name by which the node logs in to others"
        again = log_in_as(open_before, Credentials("PLAIN", "alice", "a", RealRandom()))
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert node.change((USERS, DELETE, None)) == (ErrorCode.NONE, "")
    eventually(lambda: node.logs_in("alice", "a"))
    assert not node.logs_in("bob", "b")


def test_mechanisms_come_and_go(node: Secured) -> None:
    assert node.change((MECHANISMS, SET, "PLAIN,SCRAM-SHA-256")) == (ErrorCode.NONE, "")
    eventually(lambda: node.offered() == ["PLAIN", "SCRAM-SHA-256"])
    code, text = node.change((MECHANISMS, SET, "OAUTHBEARER"))
    assert code == ErrorCode.INVALID_REQUEST and "sasl.oauthbearer.jwks.endpoint.url" in text
    own = "sasl.mechanism.inter.broker.protocol"
    login = f"{OF_SASL}scram-sha-256.sasl.jaas.config"
    assert node.change((own, SET, "SCRAM-SHA-256"), (login, SET, f'{SCRAM} username="u" password="p";'))[0] == 0

    def mechanism() -> str:
        who = node.thread.broker._security.between_brokers.sasl()
        return "" if who is None else who.mechanism

    eventually(lambda: mechanism() == "SCRAM-SHA-256")
    assert node.replace() == (ErrorCode.NONE, "")
    eventually(lambda: node.offered() == ["PLAIN"] and mechanism() == "PLAIN")
