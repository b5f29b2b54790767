"""Messages to bytes and back.

`encode` and `decode` compile a function for a (message, version) pair at its first use and keep it. Decoding is
bounded: each length and count is compared with the bytes that remain before anything is allocated, an array has at most
a million elements, and whatever a peer sends, the only error is ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, TypeVar

from odradek.common.errors import ProtocolError
from odradek.protocol.declare import Message
from odradek.protocol.decoder import compile_decoder
from odradek.protocol.encoder import compile_encoder
from odradek.protocol.records_field import Records, RecordsChunks
from odradek.protocol.wire import Buffer

__all__ = [
    "Buffer",
    "Records",
    "RecordsChunks",
    "append_in_steps",
    "append_to",
    "decode",
    "decode_in_steps",
    "decode_prefix",
    "encode",
    "encode_chunks",
]

M = TypeVar("M", bound=Message)
_NOT_ENCODABLE = (struct.error, TypeError, AttributeError, OverflowError)
_NOT_DECODABLE = (IndexError, struct.error, UnicodeDecodeError)

# Below this size it is cheaper to copy a frame to bytes, whose small slices cost less, than to slice a memoryview.
_COPY_BELOW_BYTES = 8192


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message in one version, records included.

    Raises:
        ApiError: UNSUPPORTED_VERSION, where this version lacks a field that has a value and must not be dropped.
        ValueError: the class has no such version, or a value does not fit its type.
    """
    chunks, _ = append_to(bytearray(), message, version)
    if len(chunks) == 1:
        return bytes(chunks[0])
    return b"".join(c if isinstance(c, bytes | bytearray | memoryview) else c.read() for c in chunks)


def encode_chunks(message: Message, version: int) -> list[Any]:
    """The bytes of a message in pieces, ready for one gathering write.

    Records are passed on by reference: bytes-like pieces, or those of `RecordsChunks` as they are.

    Raises:
        ApiError, ValueError: as `encode`.
    """
    return append_to(bytearray(), message, version)[0]


def append_to(out: bytearray, message: Message, version: int) -> tuple[list[Any], int]:
    """Append a message to `out`, which may hold a header already.

    Returns:
        (pieces, bytes in all of them); the first piece is `out`.
    Raises:
        ApiError, ValueError: as `encode`.
    """
    cls = type(message)
    encoder = cls.ENCODERS.get(version)
    if encoder is None:
        encoder = cls.ENCODERS[version] = compile_encoder(cls, _valid(cls, version), version in cls.FLEXIBLE)
    try:
        pieces: tuple[list[Any], int] = encoder(message, out)
    except _NOT_ENCODABLE as error:
        raise ValueError(f"{cls.__name__} version {version} cannot be encoded: {error}") from error
    return pieces


def append_in_steps(out: bytearray, message: Message, version: int) -> Generator[None, None, tuple[list[Any], int]]:
    """Append as `append_to` does, in steps of some milliseconds, for messages of a hundred thousand elements."""
    cls = type(message)
    encoder = cls.STEP_ENCODERS.get(version)
    if encoder is None:
        encoder = compile_encoder(cls, _valid(cls, version), version in cls.FLEXIBLE, in_steps=True)
        cls.STEP_ENCODERS[version] = encoder
    try:
        pieces: tuple[list[Any], int] = yield from encoder(message, out)
    except _NOT_ENCODABLE as error:
        raise ValueError(f"{cls.__name__} version {version} cannot be encoded: {error}") from error
    return pieces


def decode(cls: type[M], data: Buffer, version: int, offset: int = 0) -> M:
    """Decode bytes that are one message and nothing else, from `offset` on.

    Records are memoryview slices of `data`; everything else is copied.

    Raises:
        ProtocolError: malformed, cut short, or followed by other bytes.
        ValueError: the class has no such version.
    """
    message, end = decode_prefix(cls, data, version, offset)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes behind {cls.__name__} version {version}")
    return message


def decode_prefix(cls: type[M], data: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Decode one message that other bytes may follow.

    Returns:
        (message, position behind it in `data`)
    Raises:
        ProtocolError, ValueError: as `decode`.
    """
    decoder = cls.DECODERS.get(version)
    if decoder is None:
        decoder = cls.DECODERS[version] = compile_decoder(cls, _valid(cls, version))
    view = memoryview(data)
    end = len(view)
    buf = data
    if type(data) is not bytes and end < _COPY_BELOW_BYTES:
        buf = bytes(data)
    try:
        decoded: tuple[M, int] = decoder(buf, view, offset, end)
    except _NOT_DECODABLE as error:
        raise _undecodable(cls, version, error) from error
    return decoded


def decode_in_steps(cls: type[M], data: Buffer, version: int, offset: int = 0) -> Generator[None, None, tuple[M, int]]:
    """Decode as `decode_prefix` does, in steps of some milliseconds, for messages of a hundred thousand elements."""
    decoder = cls.STEP_DECODERS.get(version)
    if decoder is None:
        decoder = cls.STEP_DECODERS[version] = compile_decoder(cls, _valid(cls, version), in_steps=True)
    view = memoryview(data)
    try:
        decoded: tuple[M, int] = yield from decoder(data, view, offset, len(view))
    except _NOT_DECODABLE as error:
        raise _undecodable(cls, version, error) from error
    return decoded


def _undecodable(cls: type[Message], version: int, error: Exception) -> ProtocolError:
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"{cls.__name__} version {version} has a string that is not UTF-8")
    return ProtocolError(f"{cls.__name__} version {version} is cut short: {error}")


def _valid(cls: type[Message], version: int) -> int:
    if version not in cls.VERSIONS:
        raise ValueError(f"{cls.__name__} has versions {cls.VERSIONS.first} to {cls.VERSIONS.last}, not {version}")
    return version
