"""Clients with false identities: login steps out of order, replayed messages, odd names, and wildcard permissions."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import AclOperation as Operation
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from joserfc.jwk import RSAKey

from odradek.client.sasl import Credentials, sasl_exchange
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealRandom
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.security.tls.stores import Identity
from tests.conftest import assert_no_traceback
from tests.integration.test_sasl import PASSWORDS, SaslNode, settings
from tests.integration.test_sasl_tokens import FIRST, document, token
from tests.support.clients.canary import Canary
from tests.support.clients.confluent import create_topic
from tests.support.clients.logins import log_in_as, say, shake
from tests.support.clients.wire import Wire
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

MEBIBYTE = 2**20
# The longest pause, in the node's processor seconds; the canary's own thread may wait longer on a busy machine.
MOST_PAUSE_S = 5.0
TOPIC = "guarded"
ALLOWED, DENIED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="plain-secret" user_*="star";'
SHA = "SCRAM-SHA-256"
_ANY: Any = None
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, Operation.ANY, AclPermissionType.ANY
)


class LiarsNode(SaslNode):
    """A node with a listener for logins and one for client certificates; clients of the plain one may do everything."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self.mutual_port = free_port()
        keys = directory / "keys.json"
        keys.write_text(document(FIRST))
        super().__init__(
            directory,
            listener__name__external__sasl__enabled__mechanisms=f"PLAIN,{SHA},OAUTHBEARER",
            listener__name__external__plain__sasl__jaas__config=USERS,
            sasl__oauthbearer__jwks__endpoint__url=f"file://{keys}",
            sasl__oauthbearer__expected__issuer="https://issuer",
            sasl__oauthbearer__expected__audience="odradek",
            authorizer__class__name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super__users="User:ANONYMOUS",
        )
        self.overrides |= {
            "listeners": f"MUTUAL://127.0.0.1:{self.mutual_port},{self.overrides['listeners']}",
            "listener.security.protocol.map": f"{self.overrides['listener.security.protocol.map']},MUTUAL:SSL",
            "listener.name.mutual.ssl.client.auth": "required",
            **certificates.server("listener.name.mutual."),
        }


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[LiarsNode]:
    """A node; a canary checks its pauses as long as the tests last."""
    with LiarsNode(tmp_path_factory.mktemp("node"), certificates) as node:
        node.add_alice()
        create_topic(node.bootstrap, TOPIC)
        before = node.memory_bytes()
        with Canary(node.port, node.cpu_s) as canary:
            yield node
        assert canary.longest_wait_s < MOST_PAUSE_S
        assert node.memory_bytes() - before < 64 * MEBIBYTE
        assert_no_traceback(node)


# ---- steps out of order


def shaking(mechanism: str = "PLAIN", version: int = 1) -> tuple[ApiKey, int, Any]:
    return ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism)


def saying(words: bytes) -> tuple[ApiKey, int, Any]:
    return ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=words)


GOOD, BAD = saying(b"\0alice\0plain-secret"), saying(b"\0alice\0wrong")
ASKING = (ApiKey.METADATA, 12, MetadataRequest(topics=[]))
VERSIONS = (ApiKey.API_VERSIONS, 0, ApiVersionsRequest())


@pytest.mark.parametrize(
    "steps",
    [
        [ASKING],
        [VERSIONS, ASKING],
        [GOOD],
        [shaking(), ASKING],
        [shaking(), VERSIONS, ASKING],
        [shaking(), shaking(), GOOD, ASKING],
        [shaking(), shaking(SHA), GOOD, ASKING],
        [shaking(), BAD, GOOD, ASKING],
        [shaking(), BAD, shaking(), GOOD, ASKING],
        [shaking("NONE"), shaking(), GOOD, ASKING],
        [shaking(SHA), GOOD, ASKING],
        [shaking("PLAIN", 0), GOOD, ASKING],
        [shaking(SHA), saying(b"n,,n=alice,r=abc"), saying(b"n,,n=alice,r=abc"), ASKING],
    ],
)
def test_steps_of_a_login_out_of_order(node: LiarsNode, steps: list[tuple[ApiKey, int, Any]]) -> None:
    """All steps are sent at once: requests behind a wrong step are not served."""
    with Wire(node.sasl_port) as wire:
        with contextlib.suppress(ConnectionError):  # the node may have closed it already
            for step in steps:
                wire.send(*step)
        last = 0
        while frame := next_frame(wire):
            (last,) = struct.unpack_from(">i", frame)
        assert last < len(steps), "the request at the end was served"


def next_frame(wire: Wire) -> bytes:
    """The next frame from the node; b"" if it has closed the connection."""
    try:
        return wire.receive_frame()
    except ConnectionError:
        return b""


# ---- replayed messages, and messages that are too large


def overheard(node: LiarsNode) -> tuple[list[bytes], Wire]:
    """Both messages of alice's SCRAM login, and her connection, on which the second message is not sent yet."""
    wire = Wire(node.sasl_port)
    shake(wire, SHA)
    talk = sasl_exchange(Credentials(SHA, "alice", PASSWORDS[SHA], RealRandom()))
    first = next(talk)
    final = talk.send(bytes(say(wire, first).auth_bytes))
    return [first, final], wire


def test_a_nonce_and_a_proof_of_another_connection_are_worth_nothing(node: LiarsNode) -> None:
    (first, final), alice = overheard(node)
    with alice, Wire(node.sasl_port) as thief:
        shake(thief, SHA)
        say(thief, first)
        assert say(thief, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert thief.is_closed_by_peer()
        assert say(alice, final).error_code == ErrorCode.NONE
    with Wire(node.sasl_port) as later:
        shake(later, SHA)
        say(later, first)
        assert say(later, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def bearer(text: str) -> bytes:
    return f"n,,\1auth=Bearer {text}\1\1".encode()


@pytest.mark.parametrize(
    "words",
    [
        lambda: bearer(token(pad="x" * 40_000)),
        lambda: bearer("a" * 500_000),
        lambda: bearer(token(RSAKey.generate_key(2048, {"kid": "first"}))),
        lambda: bearer(token(exp=1)),
        lambda: bearer(token(aud="another")),
        lambda: bearer(token(sub="")),
        lambda: b"n,a=alice," + bearer(token(sub="robot"))[3:],
    ],
    ids=["large", "half a megabyte", "foreign", "expired", "another's", "no one", "for another user"],
)
def test_tokens_that_let_no_one_in(node: LiarsNode, words: Callable[[], bytes]) -> None:
    with Wire(node.sasl_port) as wire:
        shake(wire, "OAUTHBEARER")
        answer = say(wire, words())
        if not answer.error_code:  # the failure itself, before the client says that it has read it
            assert answer.auth_bytes
            answer = say(wire, b"\1")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_peer()


@pytest.mark.parametrize("size", [524_289, 2**31 - 1])
def test_a_message_above_the_limit_is_not_even_read(node: LiarsNode, size: int) -> None:
    with Wire(node.sasl_port) as wire:
        shake(wire, "OAUTHBEARER")
        wire.socket.sendall(struct.pack(">i", size))
        assert wire.is_closed_by_peer()


def test_peers_that_do_not_log_in_keep_no_memory_from_clients(tmp_path: Path) -> None:
    """Each holds the memory of half a message until its time is over, from an address of its own."""
    limits = {"socket__request__max__bytes": MEBIBYTE, "queued__max__request__bytes": 4 * MEBIBYTE}
    with SaslNode(tmp_path, **limits).start() as node, contextlib.ExitStack() as held:
        create_topic(node.bootstrap, TOPIC)
        peers = []
        for number in range(16):
            own = (f"127.0.0.{number + 2}", 0)
            peer = socket.create_connection(("127.0.0.1", node.sasl_port), 60, source_address=own)
            peers.append(held.enter_context(peer))
            peer.sendall(struct.pack(">i", 500_000) + bytes(100))
        client = settings("PLAIN") | {"bootstrap.servers": node.sasl_bootstrap}
        producer = Producer(client)
        for _ in range(3):
            producer.produce(TOPIC, os.urandom(100_000))
            assert producer.flush(60) == 0
        closed, _, _ = select.select(peers, [], [], 0)
        assert not closed, "the client had to wait until a peer's time was over"


# ---- names


def certified(certificates: Certificates, name: x509.Name, port: int) -> Wire:
    """A connection of a client whose certificate has this name."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(certificates.authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(certificates.authority.key, hashes.SHA256())
    )
    path = certificates.directory / f"{os.urandom(8).hex()}.pem"
    path.write_bytes(Identity(key, (certificate, certificates.authority.certificate)).to_pem())
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(path)
    wire = Wire(port)
    wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
    return wire


def common(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def described(wire: Wire) -> int:
    """The code that a client gets for the guarded topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    return int(wire.request(ApiKey.METADATA, 12, request).topics[0].error_code)


def allow(
    node: LiarsNode,
    principal: str,
    kind: ResourceType = ResourceType.TOPIC,
    name: str = TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    change(node, [AclBinding(kind, name, pattern, principal, "*", Operation.READ, permission)])


def change(node: LiarsNode, wanted: list[AclBinding]) -> None:
    """Replace all ACLs by these."""
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in client.delete_acls([EVERY_ACL]).values():
        future.result(60)
    for future in client.create_acls(wanted).values() if wanted else ():
        future.result(60)


def test_a_newline_in_the_name_of_a_certificate_forges_no_line(node: LiarsNode, certificates: Certificates) -> None:
    forged = '2026-11-26T00:00:00.000Z ERROR forged event="all is lost"'
    name = f"alice\n{forged}"
    change(node, [])
    with certified(certificates, common(name), node.mutual_port) as wire:
        assert described(wire) == DENIED
        eventually(lambda: "forged" in node.log_text())
        lines = node.log_text().splitlines()
        assert forged not in lines
        audited = [json.loads(line) for line in lines if "forged" in line and '"logger"' in line]
        assert {each["principal"] for each in audited} == {f"User:CN={name}".replace('"', '\\"')}
        allow(node, f"User:CN={name}".replace('"', '\\"'))
        eventually(lambda: described(wire) == ALLOWED)
    with certified(certificates, common("alice"), node.mutual_port) as other:
        assert described(other) == DENIED


@pytest.mark.parametrize("name", [x509.Name([]), common("*"), common(" "), common("ANONYMOUS"), common("alice")])
def test_a_certificate_makes_no_one_else(node: LiarsNode, certificates: Certificates, name: x509.Name) -> None:
    """Such a client is neither the super user ANONYMOUS, nor a user of another listener, nor `User:*`."""
    allow(node, "User:alice")
    with certified(certificates, name, node.mutual_port) as wire:
        assert described(wire) == DENIED
        allow(node, "User:*")
        eventually(lambda: described(wire) == ALLOWED)


def test_a_user_who_is_called_star_is_not_everybody(node: LiarsNode) -> None:
    change(node, [])
    with Wire(node.sasl_port) as wire:
        assert log_in_as(wire, Credentials("PLAIN", "*", "star", RealRandom())).error_code == ErrorCode.NONE
        assert described(wire) == DENIED
        allow(node, "User:alice")
        assert described(wire) == DENIED
        allow(node, "User:*")
        eventually(lambda: described(wire) == ALLOWED)


@pytest.mark.parametrize(
    "words", [b"\0\0plain-secret", b"\0\0", b"\0*\0", b"\0*\0plain-secret", b"ANONYMOUS\0alice\0plain-secret"]
)
def test_names_that_log_in_as_no_one(node: LiarsNode, words: bytes) -> None:
    with Wire(node.sasl_port) as wire:
        shake(wire, "PLAIN")
        assert say(wire, words).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# ---- a star as the name of a resource


def coordinated(wire: Wire, group: str) -> int:
    """The code that a client gets where it asks for the coordinator of a group."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    code = int(wire.request(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code)
    return ErrorCode.GROUP_AUTHORIZATION_FAILED if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else ErrorCode.NONE


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (ResourcePatternType.LITERAL, {"*": True, "*a": True, "a": True}),
        (ResourcePatternType.PREFIXED, {"*": True, "*a": True, "a": False}),
    ],
)
def test_a_star_means_all_where_it_is_literal(
    node: LiarsNode, pattern: ResourcePatternType, groups: dict[str, bool]
) -> None:
    allow(node, "User:alice", ResourceType.GROUP, "*", pattern)
    with Wire(node.sasl_port) as wire:
        log_in_as(wire, Credentials("PLAIN", "alice", PASSWORDS["PLAIN"], RealRandom()))
        eventually(lambda: coordinated(wire, "*") == ErrorCode.NONE)
        found = {group: coordinated(wire, group) == ErrorCode.NONE for group in groups}
    assert found == groups


def test_a_star_that_denies_stands_above_a_name_that_allows(node: LiarsNode) -> None:
    allow(node, "User:alice")
    with Wire(node.sasl_port) as wire:
        log_in_as(wire, Credentials("PLAIN", "alice", PASSWORDS["PLAIN"], RealRandom()))
        eventually(lambda: described(wire) == ALLOWED)
        everybody = AclBinding(
            ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:*", "*", Operation.ALL, AclPermissionType.DENY
        )
        named = AclBinding(
            ResourceType.TOPIC,
            TOPIC,
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            Operation.READ,
            AclPermissionType.ALLOW,
        )
        change(node, [everybody, named])
        eventually(lambda: described(wire) == DENIED)
