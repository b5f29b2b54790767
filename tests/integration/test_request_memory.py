"""Requests that are announced and come in part cost a bounded amount of memory, and keep no other client waiting."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.protocol.apis import ApiKey
from odradek.protocol.framing import encode_request
from odradek.protocol.messages.metadata_request import MetadataRequest
from tests.conftest import assert_no_traceback
from tests.support.clients.api_calls import batch, fetch_request, fetch_topic, produce_request
from tests.support.clients.confluent import create_topic, read_all
from tests.support.clients.quotas import set_quotas
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

MIB = 2**20
CROWD = 100
ANNOUNCED_BYTES = 100 * MIB
SENT_BYTES = 20 * MIB
BUDGET_BYTES = 200 * MIB
# The kernel's buffers of a socket that is not read take no memory of the node.
PIECE = bytes(MIB)


def peak_memory_bytes(node: Node) -> int:
    """The most resident memory that the process has had."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


class HalfSender:
    """Announces a large request, and sends a part of it as fast as the node takes it."""

    def __init__(self, node: Node) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port))
        self.socket.setblocking(False)
        self.socket.send(struct.pack(">i", ANNOUNCED_BYTES))
        self.left = SENT_BYTES

    def send_more(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.left -= self.socket.send(PIECE[: self.left])


@contextlib.contextmanager
def crowd(node: Node) -> Iterator[list[HalfSender]]:
    senders = [HalfSender(node) for _ in range(CROWD)]
    try:
        yield senders
    finally:
        for each in senders:
            each.socket.close()


def produce(node: Node, topic: str, sizes: list[int]) -> None:
    """One record of each size; each is acknowledged before the next is sent."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "message.max.bytes": 2 * MIB})
    refused: list[str] = []
    for size in sizes:
        producer.produce(topic, bytes(size), on_delivery=lambda error, _: refused.append(str(error)) if error else None)
        assert producer.flush(120) == 0
    assert not refused, refused


def push(senders: list[HalfSender], seconds: float) -> None:
    """Send on all connections for a while; those that the node does not read take what the system keeps for them."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and any(each.left for each in senders):
        for each in senders:
            with contextlib.suppress(ConnectionError):
                each.send_more()


@pytest.mark.parametrize(
    "how", ["queued.max.request.bytes", pytest.param("a share of the machine's memory", marks=pytest.mark.slow)]
)
def test_a_hundred_requests_that_come_in_part(tmp_path: Path, how: str) -> None:
    configured = how == "queued.max.request.bytes"
    budget = BUDGET_BYTES if configured else 1024 * MIB
    with Node(tmp_path / "node", {how: budget} if configured else {}) as node:
        create_topic(node.bootstrap, "canary", max_message_bytes=2 * MIB)
        produce(node, "canary", [10, 10_000, MIB])
        before = node.memory_bytes()
        with crowd(node) as senders:
            push(senders, 2)
            produce(node, "canary", [10, 10_000, 500_000, MIB] * 5)
            with Wire(node.port) as wire:
                assert wire.request(ApiKey.METADATA, 1, MetadataRequest(topics=None)).topics
            grown = peak_memory_bytes(node) - before
            assert grown < budget / 2 + 64 * MIB, f"{grown / MIB:.0f} MiB for requests that are half here"
        produce(node, "canary", [MIB])
        assert len(read_all(node.bootstrap, "canary")) == 3 + 20 + 1
        assert_no_traceback(node)


def test_a_request_waiting_for_memory_gets_it_when_others_stall(tmp_path: Path) -> None:
    overrides = {"queued.max.request.bytes": 4 * MIB, "socket.request.max.bytes": 4 * MIB}
    with Node(tmp_path / "node", overrides | {"connections.max.idle.ms": 3000}) as node:
        create_topic(node.bootstrap, "canary")
        holders = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(10)]
        try:
            for each in holders:
                each.sendall(struct.pack(">i", MIB) + bytes(100_000))
            produce(node, "canary", [500_000] * 3)
            eventually(lambda: "came to a halt" in node.log_text())
        finally:
            for each in holders:
                each.close()
        assert len(read_all(node.bootstrap, "canary")) == 3
        assert_no_traceback(node)


class Flood:
    """Sends requests as fast as the node takes them, and reads its answers or does not."""

    def __init__(self, node: Node, frame: bytes, *, reads: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port))
        self.socket.setblocking(False)
        self.frame, self.sent, self.reads = frame, 0, reads

    def send_more(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.sent += self.socket.send(memoryview(self.frame)[self.sent % len(self.frame) :])
        if self.reads:
            with contextlib.suppress(BlockingIOError):
                assert self.socket.recv(65536)


@pytest.mark.slow
@pytest.mark.parametrize("has_quotas", [False, True])
def test_four_hundred_clients_fit_into_300_mb(tmp_path: Path, has_quotas: bool) -> None:
    """200 producers of 1 MB, 200 consumers that do not read; a quarter of the memory is the budget, as by default."""
    overrides = {"queued.max.request.bytes": 75 * MIB, "socket.request.max.bytes": 64 * MIB}
    with Node(tmp_path / "node", overrides) as node:
        create_topic(node.bootstrap, "flood", max_message_bytes=2 * MIB)
        create_topic(node.bootstrap, "canary", max_message_bytes=2 * MIB)
        produce(node, "flood", [MIB] * 5)
        if has_quotas:
            set_quotas(node.port, {"client-id": "flood"}, producer_byte_rate=MIB, consumer_byte_rate=MIB)
        sent = produce_request("flood", batch(bytes(MIB)), acks=1)
        asked = fetch_request(fetch_topic("flood", {0: 0}, max_bytes=5 * MIB), max_bytes=5 * MIB)
        write = b"".join(encode_request(ApiKey.PRODUCE, 9, 1, "flood", sent))
        read = b"".join(encode_request(ApiKey.FETCH, 12, 1, "flood", asked))
        floods = [Flood(node, write, reads=True) for _ in range(200)]
        floods += [Flood(node, read, reads=False) for _ in range(200)]
        try:
            for _ in range(5):
                ends = time.monotonic() + 3
                while time.monotonic() < ends:
                    for each in floods:
                        each.send_more()
                produce(node, "canary", [10, MIB])
        finally:
            for each in floods:
                each.socket.close()
        peak = peak_memory_bytes(node)
        print(f"{peak / MIB:.0f} MiB, {sum(each.sent for each in floods) / MIB:.0f} MiB sent")
        assert peak < 300 * MIB, f"{peak / MIB:.0f} MiB"
        assert len(read_all(node.bootstrap, "canary")) == 10
        assert_no_traceback(node)


def test_a_trickle_is_cut(tmp_path: Path) -> None:
    with Node(tmp_path / "node", {"connections.max.idle.ms": 1000}) as node:
        trickles = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(3)]
        for peer, start in zip(trickles, (b"", struct.pack(">i", 1000), struct.pack(">i", 5000)), strict=True):
            peer.sendall(start)
        left = list(trickles)
        ends = time.monotonic() + 90
        while left and time.monotonic() < ends:
            for peer in tuple(left):
                try:
                    peer.sendall(b"\0")
                except ConnectionError:
                    left.remove(peer)
            time.sleep(0.2)
        # Four zero bytes are an empty frame, which ends the first connection anyway.
        assert not left, "one byte after the other keeps a connection for as long as it likes"
        assert node.log_text().count("is not here after") == 2
        for peer in trickles:
            peer.close()
        assert_no_traceback(node)
