"""Pieces of any size give the same frames, and no memory is reserved for bytes that a length only announces."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.errors import ProtocolError
from odradek.server.network.request_reader import FIRST_BUFFER_BYTES, SCRATCH_BYTES, RequestReader, new_scratch

LIMIT = 4 * 1024 * 1024


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(inbound: RequestReader, data: bytes, sizes: list[int] | None = None) -> list[bytes]:
    """Hand bytes over as a transport does, at most as many at a time as the next size and the buffer say."""
    found: list[bytes] = []
    position, turn = 0, 0
    while position < len(data):
        view = inbound.buffer()
        size = min(len(view), len(data) - position, sizes[turn % len(sizes)] if sizes else len(data))
        view[:size] = data[position : position + size]
        del view  # as a transport, which holds no buffer from one read to the next
        found += [bytes(frame) for frame in inbound.received(size)]
        position += size
        turn += 1
    return found


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_pieces_do_not_matter(bodies: list[bytes], sizes: list[int]) -> None:
    assert feed(RequestReader(new_scratch(), LIMIT), framed(*bodies), sizes) == bodies


@pytest.mark.parametrize(
    "size", [0, 1, FIRST_BUFFER_BYTES, FIRST_BUFFER_BYTES + 1, SCRATCH_BYTES - 4, SCRATCH_BYTES, LIMIT]
)
def test_frames_of_every_size_between_small_ones(size: int) -> None:
    bodies = [b"before", bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"", b"after"]
    for sizes in ([LIMIT], [1000], [SCRATCH_BYTES - 1], [7, 100_000]):
        assert feed(RequestReader(new_scratch(), LIMIT), framed(*bodies), sizes) == bodies


def test_connections_share_a_scratch_and_keep_their_own_rest() -> None:
    scratch = new_scratch()
    one, two = RequestReader(scratch, LIMIT), RequestReader(scratch, LIMIT)
    data = {one: framed(b"first" * 10, b"of one"), two: framed(b"second" * 10, b"of two")}
    found: dict[RequestReader, list[bytes]] = {one: [], two: []}
    for position in range(0, 80, 3):
        for inbound, stream in data.items():
            found[inbound] += feed(inbound, stream[position : position + 3])
    assert found == {one: [b"first" * 10, b"of one"], two: [b"second" * 10, b"of two"]}


def test_a_promise_reserves_little() -> None:
    inbound = RequestReader(new_scratch(), 100_000_000)
    feed(inbound, struct.pack(">i", 100_000_000) + b"x" * 100)
    assert inbound.held_bytes <= FIRST_BUFFER_BYTES
    came = 100
    while came < 5_000_000:
        came += 50_000
        feed(inbound, bytes(50_000))
        assert inbound.held_bytes <= max(FIRST_BUFFER_BYTES, 2 * came), "no more than twice of what came"


def test_an_idle_connection_holds_nothing() -> None:
    inbound = RequestReader(new_scratch(), LIMIT)
    assert inbound.held_bytes == 0
    feed(inbound, framed(bytes(300_000)))
    feed(inbound, b"\x00\x00")
    assert inbound.held_bytes == 0


def test_a_frame_is_its_own_memory() -> None:
    inbound = RequestReader(new_scratch(), LIMIT)
    (first,) = feed(inbound, framed(b"first"))
    feed(inbound, framed(b"other"))
    assert first == b"first"


@pytest.mark.parametrize(
    ("start", "guess"),
    [
        (struct.pack(">i", -1), "negative"),
        (struct.pack(">i", -(2**31)), "negative"),
        (struct.pack(">i", LIMIT + 1), "socket.request.max.bytes"),
        (b"\x16\x03\x01\x02", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /topics", "HTTP"),
    ],
)
def test_bytes_that_are_no_frame_get_a_guess_in_the_log(start: bytes, guess: str) -> None:
    with pytest.raises(ProtocolError, match=guess):
        feed(RequestReader(new_scratch(), LIMIT), start)


def test_frames_before_a_bad_length_are_lost_with_it() -> None:
    with pytest.raises(ProtocolError):
        feed(RequestReader(new_scratch(), LIMIT), framed(b"good") + b"\xff\xff\xff\xff")


def test_a_full_buffer_says_that_more_may_wait() -> None:
    inbound = RequestReader(new_scratch(), LIMIT)
    offered = len(inbound.buffer())
    assert inbound.filled_buffer(offered)
    assert not inbound.filled_buffer(offered - 1)
