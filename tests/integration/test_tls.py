"""Nodes whose listeners speak TLS, with stock clients: which are accepted, as which user, and how a refusal looks."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.testing import Cluster
from tests.support.clients.api_calls import fresh_name
from tests.support.clients.quotas import set_quotas
from tests.support.clients.wire import Wire
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.tls_node import TlsNode, connected, shown
from tests.support.waiting import eventually

YESTERDAY = datetime.timedelta(days=-1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[TlsNode]:
    made = TlsNode(tmp_path_factory.mktemp("node"), certificates.server("listener.name.external."))
    with made:
        yield made


def produce(settings: Mapping[str, object], address: str, topic: str, values: Sequence[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": address, **settings})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(60) == 0
    assert errors == []


def consume(settings: Mapping[str, object], address: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": uuid4().hex, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    try:
        while len(found) < count:
            found += eventually(lambda: consumer.consume(count, 0.5), f"{count} records")
    finally:
        consumer.close()
    return [each.value() for each in found]


def first_error(settings: Mapping[str, str], address: str) -> str:
    """librdkafka's first errors when it cannot connect."""
    said: list[str] = []
    client = AdminClient(
        {"bootstrap.servers": address, **settings, "error_cb": lambda error: said.append(str(error))}  # type: ignore[dict-item]  # what it returns does not matter
    )
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    eventually(lambda: client.poll(0.1) is not None and bool(said))
    return " ".join(said)


def test_a_stock_client_produces_and_consumes_over_tls(node: TlsNode, certificates: Certificates) -> None:
    values: list[bytes | None] = [bytes([each % 251]) * 1000 for each in range(500)]
    produce(certificates.client(), node.tls_address, "small", values)
    assert consume(certificates.client(), node.tls_address, "small", 500) == values
    assert consume({}, node.bootstrap, "small", 500) == values


def test_large_responses_come_whole(node: TlsNode, certificates: Certificates) -> None:
    values: list[bytes | None] = [bytes([each]) * 900_000 for each in range(24)]
    produce(certificates.client(), node.tls_address, "large", values)
    assert consume(certificates.client(), node.tls_address, "large", 24) == values


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_served(node: TlsNode, certificates: Certificates, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.minimum_version = context.maximum_version = version
    with connected(node, context) as secured:
        secured.sendall(bytes.fromhex("0000000c001200000000000700026d65"))  # ApiVersions
        assert int.from_bytes(secured.recv(65536)[4:8], "big") == 7


def test_a_client_that_trusts_another_authority_is_refused_on_both_ends(node: TlsNode, tmp_path: Path) -> None:
    said = first_error(Certificates(tmp_path / "other", "Another authority").client(), node.tls_address)
    assert "certificate" in said.lower()
    eventually(lambda: "the client does not trust the authority of this node's certificate" in node.log_text())


def test_a_client_in_plain_text_is_refused_with_the_reason(node: TlsNode) -> None:
    with socket.create_connection(("127.0.0.1", node.tls_port), 30) as raw:
        raw.sendall(bytes.fromhex("0000000c001200000000000700026d65"))
        raw.settimeout(30)
        while raw.recv(4096):
            pass
    eventually(lambda: "the peer does not speak TLS" in node.log_text())


def test_clients_that_do_not_read_hold_little_memory(node: TlsNode, certificates: Certificates) -> None:
    """Each client has requested megabytes, twice, and has read no more than the first bytes."""
    topic, readers = fresh_name(), 40
    produce(certificates.client(), node.tls_address, topic, [bytes(500_000)] * 20)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    wanted = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=10_000_000, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with contextlib.ExitStack() as held:
        before = node.memory_bytes()
        for _ in range(readers):
            reader = held.enter_context(Wire(node.tls_port))
            reader.socket = context.wrap_socket(reader.socket, server_hostname="127.0.0.1")
            for _ in range(2):
                reader.send(ApiKey.FETCH, 11, wanted)
            assert reader.socket.recv(1)
        grown = node.memory_bytes() - before
    assert grown < readers * 800_000, f"{grown // readers} bytes each"


def test_connections_beyond_a_quota_get_no_handshake(node: TlsNode, certificates: Certificates) -> None:
    set_quotas(node.port, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    idle = [socket.create_connection(("127.0.0.1", node.tls_port), 30) for _ in range(40)]
    try:
        # Connections beyond the rate of ten seconds are closed without a response.
        idle[-1].settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert idle[-1].recv(1) == b""
        # The listener of the brokers has no such quota.
        set_quotas(node.port, {"ip": "127.0.0.1"}, connection_creation_rate=None)
        produce(certificates.client(), node.tls_address, "after-quota", [b"here"])
    finally:
        for each in idle:
            each.close()


def test_a_certificate_for_another_host_is_refused_by_the_client(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    keystore = certificates.issue("elsewhere", ["kafka.example"])
    with TlsNode(tmp_path, certificates.server("listener.name.external.", keystore)) as node:
        assert "certificate" in first_error(certificates.client(), node.tls_address).lower()


def test_clients_must_show_a_certificate_where_it_is_required(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = certificates.server("listener.name.external.") | {"listener.name.external.ssl.client.auth": "required"}
    with TlsNode(tmp_path, settings) as node:
        produce(certificates.client(certificates.issue("alice", [])), node.tls_address, "mutual", [b"one"])
        assert "alert certificate required" in first_error(certificates.client(), node.tls_address)
        eventually(lambda: "the client shows no certificate" in node.log_text())
        expired = certificates.issue("late", [], valid=YESTERDAY)
        assert "alert certificate expired" in first_error(certificates.client(expired), node.tls_address)
        eventually(lambda: "certificate has expired" in node.log_text())
        foreign = Certificates(tmp_path / "other", "Another authority").issue("mallory", [])
        assert "alert unknown ca" in first_error(certificates.client(foreign), node.tls_address)
        eventually(lambda: "self-signed certificate in certificate chain" in node.log_text())


def test_nodes_talk_to_each_other_over_mutual_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = certificates.server() | {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "ssl.client.auth": "required",
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
    }
    client = certificates.client(certificates.issue("alice", []))
    with Cluster(3, settings=settings) as cluster:
        produce(client, cluster.bootstrap_servers, "replicated", [b"one"])
        cluster.kill(cluster.leader("replicated"))
        produce(client, cluster.bootstrap_servers, "replicated", [b"two"])
        assert consume(client, cluster.bootstrap_servers, "replicated", 2) == [b"one", b"two"]


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    keystore = certificates.issue("first", file="node")
    with TlsNode(tmp_path, certificates.server("listener.name.external.", keystore)) as node:
        assert shown(node, certificates) == "first"
        keystore.write_text("no certificate")
        eventually(lambda: "a renewed certificate is not used: the old one stays" in node.log_text())
        assert shown(node, certificates) == "first"
        certificates.issue("second", file="node")
        eventually(lambda: shown(node, certificates) == "second")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "a listener with SSL needs ssl.keystore.location"),
        ({"ssl.keystore.location": "/nowhere.pem", "ssl.keystore.type": "PEM"}, "No such file or directory"),
        ({"ssl.client.auth": "required"}, "needs ssl.keystore.location"),
    ],
)
def test_a_node_without_usable_keys_says_so_and_does_not_start(
    tmp_path: Path, settings: dict[str, object], reason: str
) -> None:
    node = TlsNode(tmp_path, settings)
    with pytest.raises(AssertionError, match="ended with"):
        node.start()
    assert reason in node.log_text() and "Traceback" not in node.log_text()


def test_an_unknown_version_of_tls_keeps_the_node_down(tmp_path: Path, certificates: Certificates) -> None:
    node = TlsNode(tmp_path, {**certificates.server(), "ssl.enabled.protocols": "TLSv1.3,SSLv3"})
    with pytest.raises(AssertionError, match=r"SSLv3 is not served; TLSv1\.2 and TLSv1\.3 are"):
        node.start()
