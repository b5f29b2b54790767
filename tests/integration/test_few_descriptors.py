"""A process that may open few files: connections are refused before logs need what they hold."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from confluent_kafka import Producer

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.conftest import assert_no_traceback
from tests.support.clients.api_calls import bytes_of
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

LIMIT = 256
IDLE = 250
RECORDS = 500
MIB = 2**20


class PoorNode(Node):
    """May have so many files and sockets open."""

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *super().command()]


def idle_connections(node: Node) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", node.port)) for _ in range(IDLE)]


def is_served(node: Node) -> bool:
    try:
        with Wire(node.port) as wire:
            return bool(wire.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0)
    except ConnectionError:
        return False


def connect_one(node: Node, readers: list[Wire]) -> None:
    """Keep one more connection if it is served."""
    wire = Wire(node.port)
    with contextlib.suppress(ConnectionError):
        wire.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        readers.append(wire)


def test_idle_connections_take_no_descriptors_from_connected_clients(tmp_path: Path) -> None:
    overrides = {"log.segment.bytes": MIB, "log.retention.check.interval.ms": 200, "log.cleaner.backoff.ms": 200}
    with PoorNode(tmp_path / "node", overrides) as node:
        create_topic(node.bootstrap, "canary")
        create_topic(node.bootstrap, "compacted", cleanup_policy="compact", segment_bytes=MIB)
        canary = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "message.timeout.ms": 120_000})
        said: list[object] = []

        def send(topic: str, number: int) -> None:
            canary.produce(
                topic, b"%06d" % number + bytes(50_000), key=b"k", on_delivery=lambda error, _: said.append(error)
            )

        send("canary", 0)
        assert canary.flush(120) == 0
        idle = idle_connections(node)
        try:
            eventually(lambda: not is_served(node))
            # Segments roll, are flushed, cleaned and let go meanwhile.
            for number in range(1, RECORDS):
                send("compacted" if number % 5 == 0 else "canary", number)
                canary.poll(0)
            assert canary.flush(120) == 0
            assert said == [None] * RECORDS
        finally:
            for each in idle:
                each.close()
        eventually(lambda: is_served(node))
        produce_all(node.bootstrap, "canary", [(None, b"after")])
        assert len(read_all(node.bootstrap, "canary")) == RECORDS - (RECORDS - 1) // 5 + 1
        text = node.log_text()
        assert "offline" not in text and "too many open files" not in text
        assert f"descriptors limit={LIMIT} kept_for_logs_and_peers=112 max_connections=" in text
        assert "connection refused" in text
        assert_no_traceback(node)


def test_slow_readers_are_served_without_a_second_descriptor(tmp_path: Path) -> None:
    with PoorNode(tmp_path / "node") as node:
        create_topic(node.bootstrap, "big")
        produce_all(node.bootstrap, "big", [(None, bytes(900_000))] * 4)
        idle = idle_connections(node)
        eventually(lambda: not is_served(node))
        for each in idle[:60]:
            each.close()
        readers: list[Wire] = []
        eventually(lambda: is_served(node))
        try:
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=40 * MIB)
            request = FetchRequest(max_bytes=40 * MIB, topics=[FetchTopic(topic="big", partitions=[partition])])
            eventually(lambda: len(readers) == 45 or connect_one(node, readers))  # type: ignore[func-returns-value]  # it returns None, which is false
            for wire in readers:
                wire.send(ApiKey.FETCH, 11, request)
            eventually(lambda: not is_served(node))  # some of them have a second one
            for wire in readers:
                answer = wire.receive(ApiKey.FETCH, 11)
                assert len(bytes_of(answer.responses[0].partitions[0].records)) > 3_500_000
        finally:
            for wire in readers:
                wire.close()
            for each in idle:
                each.close()
        assert "offline" not in node.log_text()
        assert_no_traceback(node)
