"""A live node under random, cut and altered frames keeps serving a canary, with flat memory and without a traceback."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from odradek.protocol.apis import API
from odradek.protocol.framing import encode_request
from tests.protocol.values import make
from tests.support.clients import create_topic, read_all
from tests.support.node import Node

SEED = 20_240_229
WARM_UP_FRAMES = 600
FRAMES = 4000
FRAMES_PER_CONNECTION = 12
FRAMES_PER_CANARY = 250
# Many of these frames wait for a rest that never comes, and get no answer.
ANSWER_WAIT_S = 0.005
# What the allocator may keep after a burst of refused requests; a leak of 10 kB a frame would show.
ALLOWED_GROWTH_BYTES = 40 * 2**20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request_frame(rng: Random) -> bytes:
    """A request of any API and version, with default or any values, as a well-behaved peer would frame it."""
    spec = API[rng.choice(list(API))]
    version = rng.randint(max(spec.min_version, 0), max(spec.max_version, 0))
    style = rng.choice(("default", "low", "random"))
    message = make(spec.request, version, version >= spec.flexible_since, style, rng)
    pieces = encode_request(spec.key, version, rng.randrange(2**31), "hostile", message)
    return b"".join(bytes(piece) for piece in pieces)


def cut(rng: Random) -> bytes:
    """A request cut anywhere, with the length of what is left: its fields end early."""
    body = request_frame(rng)[4:]
    return framed(body[: rng.randrange(len(body))])


def altered(rng: Random) -> bytes:
    """A request with up to four bytes changed behind its length."""
    frame = bytearray(request_frame(rng))
    for _ in range(rng.randint(1, 4)):
        frame[rng.randrange(4, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(frame)


def announced_but_not_sent(rng: Random) -> bytes:
    """A frame whose length promises more, less than nothing, or more than anyone may send."""
    length = rng.choice((-1, -(2**31), 2**31 - 1, 120_000_000, rng.randrange(1000, 1_000_000)))
    return struct.pack(">i", length) + rng.randbytes(rng.randrange(200))


def noise(rng: Random) -> bytes:
    return rng.choice((rng.randbytes(rng.randrange(1, 300)), framed(rng.randbytes(rng.randrange(0, 300)))))


def speaks_something_else(rng: Random) -> bytes:
    return rng.choice(
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(64),
        )
    )


KINDS = (request_frame, cut, cut, altered, altered, altered, announced_but_not_sent, noise, speaks_something_else)


def storm(port: int, rng: Random, count: int) -> Iterator[int]:
    """Send so many hostile frames, a few to a connection; yields after each."""
    number = 0
    while number < count:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            for _ in range(rng.randint(1, FRAMES_PER_CONNECTION)):
                number += 1
                yield number
                connection.sendall(rng.choice(KINDS)(rng))
                answered, _, _ = select.select([connection], [], [], ANSWER_WAIT_S)
                if answered and connection.recv(65_536) == b"":
                    break  # the node has hung up: the rest of this connection would go nowhere


class Canary:
    """A client that must never notice: each chirp is one acknowledged record."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.timeout.ms": 20_000})
        self.count = 0
        self.slowest_s = 0.0

    def chirp(self) -> None:
        refused: list[str] = []
        started = time.monotonic()
        self.producer.produce(
            "canary", f"{self.count}", on_delivery=lambda error, _: refused.append(str(error)) if error else None
        )
        assert self.producer.flush(20) == 0, f"chirp {self.count} was not answered in 20 s"
        assert not refused, refused
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        self.count += 1


@pytest.fixture
def closed_node(tmp_path: Path) -> Iterator[Node]:
    """A node that creates no topic on its own: stray names in Metadata requests would fill its disk, as they should."""
    with Node(tmp_path / "node", {"auto.create.topics.enable": "false"}) as running:
        yield running


def test_the_canary_lives(closed_node: Node) -> None:
    rng = Random(SEED)
    create_topic(closed_node.bootstrap, "canary")
    canary = Canary(closed_node.bootstrap)
    canary.chirp()
    for _ in storm(closed_node.port, rng, WARM_UP_FRAMES):
        pass
    canary.chirp()
    before = closed_node.memory_bytes()
    for number in storm(closed_node.port, rng, FRAMES):
        if number % FRAMES_PER_CANARY == 0:
            canary.chirp()
    canary.chirp()
    grown = closed_node.memory_bytes() - before
    assert grown < ALLOWED_GROWTH_BYTES, f"{FRAMES} hostile frames left {grown / 2**20:.0f} MiB behind"
    assert canary.slowest_s < 5, f"a chirp took {canary.slowest_s:.1f} s"
    values = [message.value() for message in read_all(closed_node.bootstrap, "canary")]
    assert values == [f"{number}".encode() for number in range(canary.count)]
    said = closed_node.log_text()
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]
    closed_node.stop()
    assert closed_node.start().memory_bytes() > 0, "the node starts again over what the storm left"
