"""A task whose connections are cut in the midst of answers still yields every record of its range once, in order."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.common.errors import ProtocolError
from pyspark_odradek.client.cluster import ClientSettings, Cluster, shared_cluster
from pyspark_odradek.client.connection import Connection, Security
from pyspark_odradek.client.offsets import OffsetRange, TopicPartition
from pyspark_odradek.errors import ClusterError
from pyspark_odradek.source.fetch import read_range
from pyspark_odradek.source.schema import source_schema
from tests.spark.queries import numbered
from tests.support.clients.confluent import create_topic
from tests.support.nodes.node import Node, free_port

SCHEMA = to_arrow_schema(source_schema(False), timezone="UTC")


class CuttingProxy:
    """Forwards connections to a port and cuts each one after a random number of bytes of answers."""

    def __init__(self, target_port: int, seed: int, mean_bytes: int) -> None:
        self.target_port = target_port
        self.cuts = 0
        self._chance = random.Random(seed)
        self._mean_bytes = mean_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for side in self._open:  # clients keep connections for their next question
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                budget = int(self._chance.expovariate(1 / self._mean_bytes))
                thread = threading.Thread(target=self._serve, args=(client, budget), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, budget: int) -> None:
        with client, socket.create_connection(("127.0.0.1", self.target_port)) as server:
            retrying = threading.Thread(target=_pump, args=(client, server), daemon=True)
            retrying.start()
            with contextlib.suppress(OSError):
                while data := server.recv(min(65536, max(1, budget))):
                    client.sendall(data)
                    budget -= len(data)
                    if budget <= 0:
                        self.cuts += 1
                        break
            for side in (client, server):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
            retrying.join(10)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, CuttingProxy]]:
    node = Node(tmp_path_factory.mktemp("proxied"))
    proxy = CuttingProxy(node.port, seed=3, mean_bytes=150_000)
    node.overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port}"
    with node:
        yield node, proxy
        proxy.close()


@pytest.fixture(scope="module")
def filled(proxied: tuple[Node, CuttingProxy], tmp_path_factory: pytest.TempPathFactory) -> int:
    """The topic `long` with so many records; fed while the proxy is still kind to it."""
    _, proxy = proxied
    proxy._mean_bytes, kind = 1 << 40, proxy._mean_bytes
    bootstrap = f"127.0.0.1:{proxy.port}"
    create_topic(bootstrap, "long")
    count = 30_000
    numbered(bootstrap, "long", range(count), batch_num_messages=200)
    proxy._mean_bytes = kind
    return count


def read(proxy: CuttingProxy, wanted: OffsetRange) -> list[tuple[int, bytes]]:
    settings = ClientSettings.parse(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "max.partition.fetch.bytes": "60000",
            "default.api.timeout.ms": "120000",
        }
    )
    found: list[tuple[int, bytes]] = []
    for rows in read_range(settings, wanted, SCHEMA, fail_on_data_loss=True):
        found += zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
    shared_cluster(settings).close()
    return found


def test_every_record_once_and_in_order(proxied: tuple[Node, CuttingProxy], filled: int) -> None:
    _, proxy = proxied
    proxy._mean_bytes, kind, before = 60_000, proxy._mean_bytes, proxy.cuts
    try:
        while proxy.cuts - before < 4:  # with fewer it would not mean anything
            found = read(proxy, OffsetRange("long", 0, 11, filled - 7))
            assert [offset for offset, _ in found] == list(range(11, filled - 7))
            assert all(value == b"%d" % offset for offset, value in found)
    finally:
        proxy._mean_bytes = kind


def test_questions_are_asked_again(proxied: tuple[Node, CuttingProxy], filled: int) -> None:
    _, proxy = proxied
    proxy._mean_bytes, kind = 1200, proxy._mean_bytes
    try:
        for _ in range(15):
            cluster = Cluster(ClientSettings.parse({"bootstrap.servers": f"127.0.0.1:{proxy.port}"}))
            assert cluster.partitions(["long"]) == {"long": [0]}
            assert cluster.list_offsets({TopicPartition("long", 0): -1}) == {TopicPartition("long", 0): filled}
            cluster.close()
    finally:
        proxy._mean_bytes = kind


def test_a_range_that_no_one_serves_ends_in_one_error() -> None:
    settings = ClientSettings.parse({"bootstrap.servers": f"127.0.0.1:{free_port()}", "default.api.timeout.ms": "300"})
    with pytest.raises(ClusterError, match=r"t-0 could not be read from offset 5 to 9 in 0.3 s"):
        list(read_range(settings, OffsetRange("t", 0, 5, 9), SCHEMA, fail_on_data_loss=True))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"security.protocol": "SSL"}, r"TLS: .*\. Does kafka.security.protocol say what this listener speaks"),
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            r"has no SASL: check security.protocol",
        ),
    ],
    ids=["tls", "sasl"],
)
def test_a_listener_that_speaks_something_else(odradek: str, given: dict[str, str], what: str) -> None:
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    settings = {"bootstrap.servers": odradek, "default.api.timeout.ms": "300"} | given | sasl
    with pytest.raises(ClusterError, match=what):
        Cluster(ClientSettings.parse(settings)).partitions(None)


@pytest.mark.parametrize(
    ("answer", "what"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "announced an answer"), (b"", "closed"), (b"\xff\xff\xff\xff", "announced")],
    ids=["http", "nothing", "negative"],
)
def test_a_peer_that_is_no_broker(answer: bytes, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        with pytest.raises((ProtocolError, ConnectionResetError), match=what):
            Connection("127.0.0.1", listener.getsockname()[1], Security(), "test", 60.0)
        thread.join(60)
