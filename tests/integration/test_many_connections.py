"""Idle connections and connections that stall cost the node little, and other clients nothing."""

from __future__ import annotations

import resource
import select
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node, free_port

IDLE = 5000
STALLED = 200
MEBIBYTE = 2**20


@pytest.fixture
def many_descriptors() -> None:
    """Room for both ends' sockets; the node is a child and inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * IDLE + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this machine allows {hard} descriptors, the test needs {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def settled_memory(node: Node) -> int:
    """Resident memory once it has stopped growing."""
    last, now = 0, node.memory_bytes()
    deadline = time.monotonic() + 20
    while now > last * 1.01 and time.monotonic() < deadline:
        time.sleep(0.5)
        last, now = now, node.memory_bytes()
    return now


@pytest.mark.usefixtures("many_descriptors")
def test_five_thousand_idle_connections(tmp_path: Path) -> None:
    # With the default backlog of 50, the system makes one in sixty of them wait for a second.
    with Node(tmp_path / "node", {"socket.listen.backlog.size": IDLE}) as node:
        before = settled_memory(node)
        idle = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(IDLE)]
        try:
            produce_all(node.bootstrap, "beside-idlers", [(None, b"v")] * 100)
            grown = settled_memory(node) - before
            assert grown < 100 * MEBIBYTE, f"{grown / IDLE / 1024:.1f} KiB for each idle connection"
        finally:
            for connection in idle:
                connection.close()


def test_readers_that_do_not_read(own_node: Node) -> None:
    create_topic(own_node.bootstrap, "big")
    produce_all(own_node.bootstrap, "big", [(None, bytes(900_000))] * 30)
    before = settled_memory(own_node)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=20 * MEBIBYTE)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=20 * MEBIBYTE, topics=[FetchTopic(topic="big", partitions=[partition])]
    )
    stalled = [Wire(own_node.port) for _ in range(STALLED)]
    try:
        for wire in stalled:
            for _ in range(5):
                wire.send(ApiKey.FETCH, 11, request)
        time.sleep(2)
        assert len(read_all(own_node.bootstrap, "big")) == 30
        grown = settled_memory(own_node) - before
        assert grown < 60 * MEBIBYTE, f"{grown / STALLED / MEBIBYTE:.1f} MiB for each stalled reader"
    finally:
        for wire in stalled:
            wire.close()


def test_a_writer_that_stops_in_the_middle_of_a_frame(own_node: Node) -> None:
    before = settled_memory(own_node)
    stalled = [Wire(own_node.port) for _ in range(STALLED)]
    try:
        for wire in stalled:
            wire.socket.sendall(bytes.fromhex("05f5e100") + b"\x00\x00\x00\x09" + b"x" * 1000)
        producer = Producer({"bootstrap.servers": own_node.bootstrap})
        producer.produce("beside-stalled", b"v")
        assert producer.flush(90) == 0
        grown = settled_memory(own_node) - before
        assert grown < 100 * MEBIBYTE, "memory was reserved for what a header promised, not for what came"
    finally:
        for wire in stalled:
            wire.close()


def test_connections_over_the_limits_are_closed_and_others_served(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Node(tmp_path_factory.mktemp("node"), {"max.connections.per.ip": 10}) as node:
        crowd = [Wire(node.port)]
        # Once this is answered, the node has closed the connection of the start's probe.
        assert is_served(crowd[0])
        crowd += [Wire(node.port) for _ in range(12)]
        assert [is_served(wire) for wire in crowd] == [True] * 10 + [False] * 3
        for wire in crowd:
            wire.close()
        produce_all(node.bootstrap, "after-the-crowd", [(None, b"v")])


def is_served(wire: Wire) -> bool:
    """Whether the node answers; it has closed the connection otherwise."""
    try:
        return bool(wire.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0)
    except ConnectionError:
        return False


def ended(wires: list[Wire]) -> list[Wire]:
    """The connections that the node closes: wait for the first, then until none is closed for a second."""
    found: list[Wire] = []
    while True:
        left = {wire.socket: wire for wire in wires if wire not in found}
        readable, _, _ = select.select(list(left), [], [], 1 if found else 90)
        if not readable:
            return [wire for wire in wires if wire in found]
        found += [left[each] for each in readable if left[each].is_closed_by_peer()]


def test_a_crowd_of_clients_does_not_keep_the_cluster_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = Node(tmp_path_factory.mktemp("node"), {"max.connections": 10, "inter.broker.listener.name": "INTERNAL"})
    internal_port = free_port()
    # Bound before the one that is waited for.
    node.overrides["listeners"] = f"INTERNAL://127.0.0.1:{internal_port},{node.overrides['listeners']}"
    protocols = (f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "INTERNAL", "CONTROLLER"))
    node.overrides["listener.security.protocol.map"] = ",".join(protocols)
    with node:
        crowd = [Wire(node.port) for _ in range(15)]
        # The node counts who looked whether it is there until it has seen that they left.
        held = [wire for wire in crowd[:8] if is_served(wire)]
        assert len(held) == 8
        with Wire(internal_port) as peer:
            assert peer.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
        assert ended(held) == held[:1], "the one that has been idle for longest made room"
        for wire in crowd:
            wire.close()
