"""Signed varints (zigzag), as records have them."""

from __future__ import annotations

from odradek.common.ports import Buffer

_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def zigzag(value: int) -> bytes:
    """A signed number of up to 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_zigzag(data: Buffer, position: int) -> tuple[int, int]:
    """(number, position behind it).

    Raises:
        IndexError: the data ends inside. ValueError: more than 64 bits.
    """
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            break
    raise ValueError("a varint of more than 64 bits")
