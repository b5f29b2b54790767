"""Frames and headers, without a socket: bytes in, frames out, and requests and responses to pieces of bytes.

A frame is an int32 length and that many bytes: a header, then a body. `FrameReader` keeps a small buffer that grows
with the frame that is arriving and no faster, so that a connection that announces much and sends little costs little.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import lru_cache
from typing import Any, Final

from odradek.common.errors import ProtocolError
from odradek.protocol.apis import API
from odradek.protocol.codec import Buffer, append_in_steps, append_to, decode_prefix
from odradek.protocol.declare import Message
from odradek.protocol.messages.request_header import RequestHeader
from odradek.protocol.messages.response_header import ResponseHeader

LENGTH_BYTES: Final = 4
# Key and version of the API, correlation id: the part of a request's header that no version may change.
FIXED_HEADER_BYTES: Final = 8
# Where the correlation id is in a request frame, behind its length and the key and version of the API.
_CORRELATION_ID_POSITION: Final = LENGTH_BYTES + 4
INITIAL_BUFFER_BYTES: Final = 4096
# A peer that has sent a large frame gets room for the next one at once, up to this.
MAX_TRUSTED_BYTES: Final = 1 << 20
# More heads of frames than clients of this process and versions of APIs need.
MAX_CACHED_HEADS: Final = 1024
_INT32 = struct.Struct(">i")


class FrameReader:
    """Cuts a stream of bytes into frames.

    Two ways in: `feed(data)`, or without a copy `get_buffer()`, fill some of it, `buffer_updated(count)`, as asyncio's
    BufferedProtocol does. `next_frame()` takes one whole frame out.
    """

    __slots__ = ("_buffer", "_filled", "_max_frame_bytes", "_start", "_trusted_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        """`max_frame_bytes` limits a frame without its length."""
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._start = 0  # of the first byte not yet handed out
        self._filled = 0
        self._trusted_bytes = 0

    def feed(self, data: Buffer) -> None:
        """Add received bytes."""
        taken = 0
        view = memoryview(data)
        while taken < len(view):
            room = self.get_buffer()
            count = min(len(room), len(view) - taken)
            room[:count] = view[taken : taken + count]
            self.buffer_updated(count)
            taken += count

    def get_buffer(self) -> memoryview:
        """Room for the next received bytes; never empty."""
        if self._start == self._filled:
            self._start = self._filled = 0
        if self._filled == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """`count` bytes of the room that `get_buffer` gave have been filled."""
        self._filled += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None while it is not all here.

        The frame is a writable memoryview of bytes of its own: it stays as it is whatever is received afterwards.

        Raises:
            ProtocolError: a length that is negative or above the limit; nothing more can be read from this stream.
        """
        start = self._start + LENGTH_BYTES
        if start > self._filled:
            return None
        length = int.from_bytes(self._buffer[self._start : start], "big", signed=True)
        if not 0 <= length <= self._max_frame_bytes:
            raise ProtocolError(f"a frame of {length} bytes; at most {self._max_frame_bytes} are allowed")
        end = start + length
        if end > self._filled:
            return None
        self._trusted_bytes = max(self._trusted_bytes, min(length + LENGTH_BYTES, MAX_TRUSTED_BYTES))
        if end == self._filled and start == LENGTH_BYTES and length * 2 >= len(self._buffer):
            # a frame that fills most of the buffer takes it along; the next one starts small again
            frame = memoryview(self._buffer)[start:end]
            self._buffer = bytearray(INITIAL_BUFFER_BYTES)
            self._start = self._filled = 0
            return frame
        frame = memoryview(self._buffer[start:end])
        self._start = end
        return frame

    def _make_room(self) -> None:
        """Move what is left to the front of a larger buffer.

        It is twice as large, or as large as the frame where the peer has sent such a frame before.
        """
        left = self._filled - self._start
        size = max(INITIAL_BUFFER_BYTES, left * 2)
        if left >= LENGTH_BYTES:
            head = self._buffer[self._start : self._start + LENGTH_BYTES]
            needed = int.from_bytes(head, "big", signed=True) + LENGTH_BYTES
            if needed > left:
                size = max(INITIAL_BUFFER_BYTES, min(needed, max(left * 2, self._trusted_bytes)))
        moved = bytearray(size)
        moved[:left] = self._buffer[self._start : self._filled]
        self._buffer, self._start, self._filled = moved, 0, left


def peek_request(frame: Buffer) -> tuple[int, int, int]:
    """(API key, API version, correlation id) of a request, of any API and version.

    Raises:
        ProtocolError: the frame is shorter than that.
    """
    if len(frame) < FIXED_HEADER_BYTES:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header")
    return (
        int.from_bytes(frame[0:2], "big", signed=True),
        int.from_bytes(frame[2:4], "big", signed=True),
        int.from_bytes(frame[4:8], "big", signed=True),
    )


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and where its body begins.

    The version of the header follows from key and version of the API. A version that the API does not have is taken
    for as flexible as its newest, so that an unknown ApiVersions can be answered; the caller must refuse the others.

    Raises:
        ProtocolError: malformed, or an API key that does not exist.
    """
    key, version, _ = peek_request(frame)
    if key not in API:
        raise ProtocolError(f"API key {key} does not exist")
    return decode_prefix(RequestHeader, frame, API[key].request_header_version(version))


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, request: Message) -> list[Any]:
    """A whole request frame in pieces, its length included."""
    out = bytearray(_request_head(key, version, client_id))
    _INT32.pack_into(out, _CORRELATION_ID_POSITION, correlation_id)
    return _framed(*append_to(out, request, version))


@lru_cache(MAX_CACHED_HEADS)
def _request_head(key: int, version: int, client_id: str | None) -> bytes:
    """Room for the length, and the header with 0 as its correlation id: a client repeats all the rest of it."""
    header = RequestHeader(request_api_key=key, request_api_version=version, client_id=client_id)
    out = bytearray(LENGTH_BYTES)
    append_to(out, header, API[key].request_header_version(version))
    return bytes(out)


def encode_response(key: int, version: int, correlation_id: int, response: Message) -> list[Any]:
    """A whole response frame in pieces, its length included; the pieces of records are passed on as they are."""
    return _framed(*append_to(_response_head(key, version, correlation_id), response, version))


def encode_response_in_steps(
    key: int, version: int, correlation_id: int, response: Message
) -> Generator[None, None, list[Any]]:
    """As `encode_response`, in steps; see `codec.append_in_steps`."""
    pieces, size_bytes = yield from append_in_steps(_response_head(key, version, correlation_id), response, version)
    return _framed(pieces, size_bytes)


def _response_head(key: int, version: int, correlation_id: int) -> bytearray:
    return bytearray(_response_head_layout(key, version).pack(0, correlation_id))


@lru_cache(MAX_CACHED_HEADS)
def _response_head_layout(key: int, version: int) -> struct.Struct:
    """Length, correlation id, and in flexible versions a byte 0 for no tagged fields."""
    return struct.Struct(">iix" if API[key].response_header_version(version) else ">ii")


def decode_response_header(key: int, version: int, frame: Buffer) -> tuple[ResponseHeader, int]:
    """The header of a response to a request of this API and version, and where its body begins.

    Raises:
        ProtocolError: malformed.
    """
    return decode_prefix(ResponseHeader, frame, API[key].response_header_version(version))


def _framed(pieces: list[Any], size_bytes: int) -> list[Any]:
    _INT32.pack_into(pieces[0], 0, size_bytes - LENGTH_BYTES)
    return pieces
