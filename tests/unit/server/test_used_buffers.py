"""Buffers of large frames are used again, and never while somebody still reads the frame that is in them."""

from __future__ import annotations

import struct

from odradek.server.network.request_reader import (
    MAX_USED_BUFFERS,
    MAX_USED_BYTES,
    BufferPool,
    RequestReader,
    new_scratch,
)


def receive(inbound: RequestReader, data: bytes) -> list[bytes]:
    """Feed one frame in reads of 100,000 bytes; returns what came out, copied, and lets the frames go."""
    return [bytes(frame) for frame in receive_views(inbound, data)]


def receive_views(inbound: RequestReader, data: bytes) -> list[memoryview]:
    framed = struct.pack(">i", len(data)) + data
    frames: list[memoryview] = []
    position = 0
    while position < len(framed):
        view = inbound.buffer()
        piece = framed[position : position + min(len(view), 100_000)]
        view[: len(piece)] = piece
        del view
        frames += [memoryview(frame) for frame in inbound.received(len(piece))]
        position += len(piece)
    return frames


def test_a_second_frame_reuses_the_buffer_of_the_first() -> None:
    used = BufferPool()
    inbound = RequestReader(new_scratch(), 1 << 30, used)
    first = bytes(range(256)) * 4000
    assert receive(inbound, first) == [first]
    held = used.held_bytes
    assert held >= len(first)
    for size in (300_000, 1_000_000, 512_000):
        data = bytes([size % 251]) * size
        assert receive(inbound, data) == [data]
        assert used.held_bytes == held, "no new memory"


def test_a_frame_that_is_still_read_is_left_alone() -> None:
    used = BufferPool()
    inbound = RequestReader(new_scratch(), 1 << 30, used)
    (kept,) = receive_views(inbound, b"a" * 500_000)
    part = kept[1000:2000]
    del kept
    assert receive(inbound, b"b" * 500_000) == [b"b" * 500_000]
    assert bytes(part) == b"a" * 1000


def test_kept_buffers_are_bounded() -> None:
    used = BufferPool()
    inbound = RequestReader(new_scratch(), 1 << 30, used)
    views = [receive_views(inbound, bytes(1_000_000)) for _ in range(40)]
    assert used.held_bytes <= MAX_USED_BYTES
    del views
    assert receive(inbound, bytes(MAX_USED_BYTES * 2)) == [bytes(MAX_USED_BYTES * 2)]
    assert used.held_bytes <= MAX_USED_BYTES


def test_small_frames_that_come_in_pieces_do_not_fill_the_memory() -> None:
    used = BufferPool()
    for number in range(1000):
        used.release(bytearray(100 + number % 7))
    kept = used.held_bytes
    assert kept <= MAX_USED_BUFFERS * 106
    first = bytes(range(256)) * 4000
    inbound = RequestReader(new_scratch(), 1 << 30, used)
    assert receive(inbound, first) == [first]
    assert used.held_bytes > len(first), "a large one takes the place of a small one"
    assert used.held_bytes < kept + 2 * len(first)
