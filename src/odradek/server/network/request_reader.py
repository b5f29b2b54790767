"""Bytes of one connection into frames, without a socket and without reserving what was only promised.

A frame is a 4-byte length and that many bytes. Idle connections own no buffer: all connections of a loop receive into
one scratch buffer, out of which whole frames are copied. Only a frame that did not arrive at once gets a buffer of its
own, into which the rest is received directly; it begins small and doubles as bytes really come, so that a header that
promises 100 MB costs its sender as much as it costs us. How much all of them may hold together is counted elsewhere
(`request_memory`): a frame that may not go on keeps what has come of it. Buffers of large frames are used again: a
producer at full speed fills a megabyte a millisecond, and fresh memory for each costs the kernel more than the copy.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable

from odradek.common.errors import ProtocolError
from odradek.common.ports import Buffer
from odradek.server.network.request_memory import FREE_BYTES

# Two of Kafka's default socket buffers; a read that fills it is one turn of a busy connection.
SCRATCH_BYTES = 256 * 1024
# A frame that spans reads begins with this much, or twice what has come of it.
FIRST_BUFFER_BYTES = 64 * 1024
# Enough for a dozen producers' requests of librdkafka's and Java's largest default size at once.
MAX_USED_BYTES = 16 * 1024 * 1024
# Each frame looks through them, so they are few.
MAX_USED_BUFFERS = 64

LIMIT_KEY = "socket.request.max.bytes"
_LENGTH = struct.Struct(">i")
_TLS_HANDSHAKE = 0x16
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PRI ")


def new_scratch() -> memoryview:
    """The receive buffer that all connections of one loop share."""
    return memoryview(bytearray(SCRATCH_BYTES))


class BufferPool:
    """Buffers of frames that were handed out, for frames to come; shared by all connections of a loop.

    No caller gives a buffer back: it is free when nothing refers to it any more, by CPython's reference count.
    """

    __slots__ = ("_buffers", "_held_bytes")

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of all buffers, in use or not; at most MAX_USED_BYTES."""
        return self._held_bytes

    def release(self, buffer: bytearray) -> None:
        """Add the buffer of a frame that was handed out; if there are too many, the oldest is removed."""
        if len(self._buffers) == MAX_USED_BUFFERS:
            self._held_bytes -= len(self._buffers.pop(0))
        if len(buffer) + self._held_bytes <= MAX_USED_BYTES:
            self._buffers.append(buffer)
            self._held_bytes += len(buffer)

    def acquire(self, size_bytes: int) -> bytearray | None:
        """Remove and return an unused buffer of at least that size; None if there is none."""
        buffers = self._buffers
        for index in range(len(buffers)):
            # Two references: of the list, and of the call itself. A view of it would be a third.
            if len(buffers[index]) >= size_bytes and sys.getrefcount(buffers[index]) == 2:
                buffer = buffers.pop(index)
                self._held_bytes -= len(buffer)
                return buffer
        return None


class RequestReader:
    """The receiving half of a connection. Between `buffer()` and `received()` nothing else may use the scratch."""

    __slots__ = (
        "_filled",
        "_frame",
        "_head",
        "_length",
        "_limit_key",
        "_max_frame_bytes",
        "_offered",
        "_scratch",
        "_used",
        "wanted_bytes",
    )

    def __init__(self, scratch: memoryview, max_frame_bytes: int, used: BufferPool | None = None) -> None:
        """Without `used`, every large frame gets memory of its own."""
        self._used = BufferPool() if used is None else used
        self._scratch = scratch
        self._max_frame_bytes = max_frame_bytes
        self._limit_key = LIMIT_KEY
        self._head = b""  # up to three bytes of a length
        self._frame: bytearray | None = None
        self._filled = 0
        self._length = 0
        self._offered = 0
        # The size of a frame that began and may not go on before `resume`; 0 where there is none.
        self.wanted_bytes = 0

    def limit(self, max_frame_bytes: int, key: str = LIMIT_KEY) -> None:
        """Accept frames up to another size from now on; `key` is the setting, for the text of the refusal."""
        self._max_frame_bytes, self._limit_key = max_frame_bytes, key

    @property
    def held_bytes(self) -> int:
        """Memory that this connection owns for a frame under way."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def under_way_bytes(self) -> int:
        """The size of the frame of which a part has come, with its length where only that has begun; 0 between two."""
        return self._length if self._frame is not None else len(self._head)

    def buffer(self, *, short: bool = False) -> memoryview:
        """The memory for the next bytes; grows the frame's own buffer if it is full.

        Args:
            short: memory is short: no more is read than a connection may always have.
        """
        frame = self._frame
        if frame is None:
            start = len(self._head)
            if start:
                self._scratch[:start] = self._head
            view = self._scratch[start : start + FREE_BYTES] if short else self._scratch[start:]
        else:
            if self._filled == len(frame):
                frame += bytes(min(self._length, 2 * len(frame)) - len(frame))
            view = memoryview(frame)[self._filled : self._length]
        self._offered = len(view)
        return view

    def discard(self) -> None:
        """Release the partial frame of a connection that ended, without waiting for a collection of cycles."""
        self._frame = None
        self._head = b""
        self._filled = self._length = self.wanted_bytes = 0

    def filled_buffer(self, count: int) -> bool:
        """Whether `count` bytes are all that was offered: more may be waiting in the socket."""
        return count == self._offered

    def resume(self) -> None:
        """Receive the rest of the frame that waited: there is memory for it now."""
        first = self._frame
        assert first is not None and self.wanted_bytes
        self.wanted_bytes = 0
        self._frame = self._own_buffer(memoryview(first), self._length)

    def received(self, count: int, reserve: Callable[[int], bool] | None = None) -> list[Buffer]:
        """Take `count` bytes that were put at the start of `buffer()`; returns the frames that are now whole.

        Args:
            reserve: whether a frame of that size that has only begun may go on at once; without it, each may.
        Raises:
            ProtocolError: a length that is negative or above the limit; the text guesses what the peer speaks.
        """
        frame = self._frame
        if frame is None:
            return self._split(len(self._head) + count, reserve)
        self._filled += count
        if self._filled < self._length:
            return []
        self._frame = None
        self._used.release(frame)
        return [memoryview(frame)[: self._length]]

    def _split(self, end: int, reserve: Callable[[int], bool] | None) -> list[Buffer]:
        scratch = self._scratch
        frames: list[Buffer] = []
        position = 0
        while end - position >= 4:
            (length,) = _LENGTH.unpack_from(scratch, position)
            if not 0 <= length <= self._max_frame_bytes:
                raise ProtocolError(self._frame_error(bytes(scratch[position : position + 4]), length))
            position += 4
            if end - position < length:
                # Behind requests that are not begun yet it waits: they may keep the connection to themselves.
                admitted = length <= FREE_BYTES or reserve is None or (not frames and reserve(length))
                self._begin(scratch[position:end], length, admitted)
                return frames
            frames.append(bytearray(scratch[position : position + length]))
            position += length
        self._head = bytes(scratch[position:end])
        return frames

    def _begin(self, first: memoryview, length: int, admitted: bool) -> None:
        self._filled, self._length, self._head = len(first), length, b""
        if admitted:
            self._frame = self._own_buffer(first, length)
        else:
            self._frame, self.wanted_bytes = bytearray(first), length

    def _own_buffer(self, first: memoryview, length: int) -> bytearray:
        have = len(first)
        frame = self._used.acquire(length) if length > FIRST_BUFFER_BYTES else None
        if frame is None:
            frame = bytearray(min(length, max(FIRST_BUFFER_BYTES, 2 * have)))
        frame[:have] = first
        return frame

    def _frame_error(self, start: bytes, length: int) -> str:
        if start[0] == _TLS_HANDSHAKE and start[1] == 3:
            return "the client speaks TLS, this listener is plaintext (security.protocol of the client?)"
        if start in _HTTP_METHODS:
            return "the client speaks HTTP, this listener speaks Kafka's protocol"
        if length < 0:
            return f"a frame of negative length {length}"
        return f"a frame of {length} bytes, above {self._limit_key}={self._max_frame_bytes}"
