"""Parses the metrics that clients push: OpenTelemetry's MetricsData in protobuf.

Gauges and sums with their attributes are read; histograms and summaries, which clients of Kafka do not send, are
skipped. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from odradek.common.ports import Buffer

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
# MetricsData.resource_metrics, ResourceMetrics.scope_metrics, ScopeMetrics.metrics.
_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_NAME, _GAUGE, _SUM = 1, 5, 7
_POINTS, _TEMPORALITY = 1, 2
_AS_DOUBLE, _AS_INT, _ATTRIBUTES = 4, 6, 7
_KEY, _VALUE = 1, 2
_STRING_VALUE, _BOOL_VALUE, _INT_VALUE, _DOUBLE_VALUE = 1, 2, 3, 4
# So many fields does a push have at most for each number that is taken: a number with ten attributes has fifty.
FIELDS_PER_POINT = 100


class OtlpError(ValueError):
    """Bytes that are no MetricsData."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a client; `is_delta`: it is added to the previous value."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool


def read_points(data: Buffer, limit: int) -> list[Point]:
    """At most `limit` numbers of a push. Raises OtlpError."""
    found: list[Point] = []
    try:
        # A limit of 0 keeps nothing; the push is none the less whole.
        for point in _Reader(max(limit, 1) * FIELDS_PER_POINT).points(memoryview(data)):
            if len(found) == limit:
                break
            found.append(point)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise OtlpError(f"the metrics are cut off or damaged: {error}") from None
    return found


class _Reader:
    """Reads one push, of no more fields than a client has a use for: megabytes of tiny ones would take seconds."""

    def __init__(self, max_fields: int) -> None:
        self._fields_left = max_fields

    def points(self, data: memoryview) -> Iterator[Point]:
        for resource in self._messages(data, _RESOURCE_METRICS):
            for scope in self._messages(resource, _SCOPE_METRICS):
                for metric in self._messages(scope, _METRICS):
                    yield from self._points_of(metric)

    def _points_of(self, metric: memoryview) -> Iterator[Point]:
        name, holder = "", None
        for field, kind, value in self._fields(metric):
            if field == _NAME and kind == _BYTES:
                name = str(value, "utf-8")
            elif field in (_GAUGE, _SUM) and kind == _BYTES:
                holder = value
        if holder is None:
            return
        points, is_delta = self._data_points(holder)
        for point in points:
            number, attributes = self._number(point)
            if number is not None:
                yield Point(name, attributes, number, is_delta)

    def _data_points(self, holder: memoryview) -> tuple[list[memoryview], bool]:
        """The data points of a gauge or a sum, and whether they are deltas."""
        points: list[memoryview] = []
        is_delta = False
        for field, kind, value in self._fields(holder):
            if field == _POINTS and kind == _BYTES:
                points.append(value)
            elif field == _TEMPORALITY and kind == _VARINT:
                is_delta = value == _DELTA
        return points, is_delta

    def _number(self, point: memoryview) -> tuple[float | None, tuple[tuple[str, str], ...]]:
        number: float | None = None
        attributes: list[tuple[str, str]] = []
        for field, kind, value in self._fields(point):
            if field == _AS_DOUBLE and kind == _FIXED64:
                (number,) = struct.unpack("<d", value)
            elif field == _AS_INT and kind == _FIXED64:
                (number,) = struct.unpack("<q", value)
            elif field == _ATTRIBUTES and kind == _BYTES:
                attributes.append(self._attribute(value))
        return number, tuple(sorted(attributes))

    def _attribute(self, pair: memoryview) -> tuple[str, str]:
        key = text = ""
        for field, kind, value in self._fields(pair):
            if field == _KEY and kind == _BYTES:
                key = str(value, "utf-8")
            elif field == _VALUE and kind == _BYTES:
                text = self._any_value(value)
        return key, text

    def _any_value(self, data: memoryview) -> str:
        for field, kind, value in self._fields(data):
            as_text = _AS_TEXT.get((field, kind))
            if as_text is not None:
                return as_text(value)
        return ""

    def _messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        return (value for field, kind, value in self._fields(data) if field == wanted and kind == _BYTES)

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int, Any]]:
        """(number, kind, value) of each field; a varint is a number, all else the bytes of it."""
        position = 0
        while position < len(data):
            self._fields_left -= 1
            if self._fields_left < 0:
                raise OtlpError("there are more fields than a push of so many numbers has")
            tag, position = _varint(data, position)
            kind = tag & 7
            if kind == _VARINT:
                number, position = _varint(data, position)
                yield tag >> 3, kind, number
                continue
            size, position = _size(data, kind, position)
            if position + size > len(data):
                raise OtlpError("a field is longer than what holds it")
            yield tag >> 3, kind, data[position : position + size]
            position += size


# The text of an attribute's value, by field and kind.
_AS_TEXT: dict[tuple[int, int], Callable[[Any], str]] = {
    (_STRING_VALUE, _BYTES): lambda value: str(value, "utf-8"),
    (_BOOL_VALUE, _VARINT): lambda value: "true" if value else "false",
    (_INT_VALUE, _VARINT): lambda value: str(value - (1 << 64) if value >> 63 else value),
    (_DOUBLE_VALUE, _FIXED64): lambda value: repr(struct.unpack("<d", value)[0]),
}


def _size(data: memoryview, kind: int, position: int) -> tuple[int, int]:
    """(bytes of a field that is no varint, where they begin)."""
    if kind == _BYTES:
        return _varint(data, position)
    if kind in (_FIXED64, _FIXED32):
        return (8 if kind == _FIXED64 else 4), position
    raise OtlpError(f"a field of kind {kind}")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise OtlpError("a number of more than ten bytes")
