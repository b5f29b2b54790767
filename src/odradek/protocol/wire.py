"""Functions for rare cases of compiled encoders and decoders: long varints, refusals, unknown tagged fields."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

# Kafka 4.4 refuses longer arrays from a peer whatever the frame's size.
MAX_ARRAY_ELEMENTS: Final = 1_000_000
MAX_STRING_BYTES: Final = 0x7FFF
# Topic and directory ids repeat in every request; a UUID costs ten times more to make than to look up.
MAX_CACHED_UUIDS: Final = 4096


def long_uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Continue an unsigned varint whose first byte, at pos - 1, has the continuation bit.

    Returns:
        (value, position behind it); value is below 2**32.
    Raises:
        ProtocolError: more than five bytes, or a value of more than 32 bits.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos
    raise ProtocolError("a varint of more than 32 bits")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """(value, position behind it) of an unsigned varint of at most 32 bits."""
    first = buf[pos]
    return (first, pos + 1) if first < 0x80 else long_uvarint(buf, pos + 1, first)


def uvarint(value: int) -> bytes:
    """An unsigned varint; value is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def refuse_null(name: str) -> NoReturn:
    """The peer sent null where this version has none."""
    raise ProtocolError(f"{name} must not be null")


def refuse_length(name: str, length: int) -> NoReturn:
    """The peer declared a length that is negative, too great, or beyond the bytes that it sent."""
    raise ProtocolError(f"{name} has a length of {length}, beyond its bytes or its limit")


def refuse_count(name: str, count: int) -> NoReturn:
    """The peer declared more elements than its bytes can hold, or than any array may have."""
    raise ProtocolError(f"{name} claims {count} elements, more than its bytes can hold or than {MAX_ARRAY_ELEMENTS}")


def refuse_tag(name: str, tag: int) -> NoReturn:
    """The peer sent a tag twice, or a size that is not that of the tagged value."""
    raise ProtocolError(f"tag {tag} of {name} is there twice or has a wrong size")


def long_string(name: str, length: int) -> NoReturn:
    """We were about to send a string that the protocol cannot carry: our bug."""
    raise ValueError(f"{name} of {length} bytes is longer than {MAX_STRING_BYTES}")


def null_value(name: str) -> NoReturn:
    """We were about to send null where this version has none: our bug."""
    raise ValueError(f"{name} must not be None in this version")


def unsupported(message: Any, version: int, names: Sequence[str]) -> None:
    """Refuse a message with a value that this version does not have, and that must not be lost silently.

    Raises:
        ApiError: UNSUPPORTED_VERSION if one of these fields does not have its default.
    """
    for spec in message.FIELDS:
        if spec.name in names and getattr(message, spec.name) != spec.new_default():
            why = f"{type(message).__name__} version {version} cannot carry a {spec.name} other than the default"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, why)


class UuidCache(dict[bytes, UUID]):
    """UUIDs by their 16 bytes; emptied when full, so that a hostile peer cannot make it grow."""

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= MAX_CACHED_UUIDS:
            self.clear()
        made = self[raw] = UUID(bytes=raw)
        return made


def read_uuids(buf: Buffer, pos: int, count: int, known: UuidCache) -> list[UUID]:
    """`count` UUIDs from pos on."""
    return [known[bytes(buf[at : at + 16])] for at in range(pos, pos + 16 * count, 16)]


@lru_cache(maxsize=256)
def run_of(code: str, count: int) -> struct.Struct:
    """The struct of an array of fixed-width elements; only small ones are worth keeping."""
    return struct.Struct(f">{count}{code}")


def read_numbers(buf: Buffer, pos: int, count: int, code: str) -> list[Any]:
    """`count` numbers of one struct code from pos on."""
    if count < 64:
        return list(run_of(code, count).unpack_from(buf, pos))
    return list(struct.unpack_from(f">{count}{code}", buf, pos))


def write_numbers(out: bytearray, values: Sequence[Any], code: str) -> None:
    """Append numbers of one struct code."""
    if len(values) < 64:
        out += run_of(code, len(values)).pack(*values)
    else:
        out += struct.pack(f">{len(values)}{code}", *values)


def write_tags(
    out: bytearray, name: str, known: list[tuple[int, bytearray]], unknown: Sequence[tuple[int, bytes]]
) -> None:
    """Append a section of tagged fields, by ascending tag.

    Raises:
        ValueError: a tag twice.
    Source: KIP-482.
    """
    entries: list[tuple[int, Buffer]] = sorted([*known, *unknown], key=lambda entry: entry[0])
    out += uvarint(len(entries))
    last = -1
    for tag, value in entries:
        if tag == last:
            raise ValueError(f"tag {tag} of {name} is there twice")
        last = tag
        out += uvarint(tag)
        out += uvarint(len(value))
        out += value
