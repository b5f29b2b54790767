"""The frame that serializers of a schema registry put before a value: a byte 0, and the id of a schema.

The id is four bytes, big endian, as in Confluent's serializers, and in Apicurio's from 3.0 on. For Protobuf the frame
also has the message's index in the schema's file: the count of numbers, and for each level the number of the message,
all in zigzag varints; a 0 alone is the first message. Source: the wire format of Confluent's Schema Registry.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from odradek.record.varint import read_zigzag, zigzag

HEAD_BYTES = 5
MOST_LEVELS = 64  # of messages within messages
WITHOUT_FRAME = "not of a schema registry: it does not begin with a byte 0 and the four of a schema's id"


class _Values(Protocol):
    def decode(self, values: Any) -> tuple[Any, dict[int, str]]: ...


def schema_id_of(value: bytes) -> int | None:
    """The id in the frame; None without a frame."""
    if len(value) < HEAD_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:HEAD_BYTES], "big")


def frame_of(schema_id: int) -> bytes:
    """The frame before a value of Avro or JSON; for Protobuf `place_frame` follows."""
    return b"\0" + schema_id.to_bytes(4, "big")


def place_frame(place: tuple[int, ...]) -> bytes:
    """The bytes behind `frame_of` for Protobuf: the index of the message in its file."""
    if place == (0,):
        return b"\0"
    return b"".join(map(zigzag, (len(place), *place)))


class BehindFrame:
    """Decodes the value behind the frame by one schema, whatever its writer's schema is.

    Args:
        values: the decoder.
        place: for Protobuf, the index of the message in its file.
    """

    def __init__(self, values: _Values, place: tuple[int, ...] | None = None) -> None:
        self._values = values
        self._place = place

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Decode values; returns (an array of structs, reasons by row of invalid values, which are null like nulls)."""
        raw = values.to_pylist()
        wrong: dict[int, str] = {}
        for row, value in enumerate(raw):
            if value is None:
                continue
            try:
                raw[row] = self._body(value)
            except ValueError as error:
                raw[row], wrong[row] = None, str(error)
        column, reasons = self._values.decode(pa.array(raw, pa.binary()))
        return column, wrong | reasons

    def _body(self, value: bytes) -> bytes:
        """The value without its frame. Raises ValueError for another message, or without a frame."""
        if schema_id_of(value) is None:
            raise ValueError(WITHOUT_FRAME)
        if self._place is None:
            return value[HEAD_BYTES:]
        place, begin = _place_of(value)
        if place != self._place:
            raise ValueError(f"message {list(place)} of its .proto file, and the query's is {list(self._place)}")
        return value[begin:]


def _place_of(value: bytes) -> tuple[tuple[int, ...], int]:
    """(where the message is in its file, where its bytes begin). Raises ValueError."""
    try:
        count, position = read_zigzag(value, HEAD_BYTES)
        if not 0 <= count <= MOST_LEVELS:
            raise ValueError(f"not of a schema registry: its message would be {count} levels deep")
        place = []
        for _ in range(count):
            number, position = read_zigzag(value, position)
            place.append(number)
    except IndexError:
        raise ValueError("not of a schema registry: it ends before its message does begin") from None
    return tuple(place) or (0,), position
