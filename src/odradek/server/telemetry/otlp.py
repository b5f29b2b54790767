"""What clients push: OpenTelemetry's MetricsData in protobuf, read as far as its numbers go.

Gauges and sums with their attributes are read; histograms and summaries, which clients of Kafka do not send, are passed
over. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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


class OtlpError(ValueError):
    """Bytes that are no MetricsData."""


@dataclass(frozen=True, slots=True)
class Point:
    """One number of a client; `is_delta`: it is to be added to what was pushed before."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool


def read_points(data: Buffer, limit: int) -> list[Point]:
    """At most `limit` numbers of a push. Raises OtlpError."""
    found: list[Point] = []
    try:
        for point in _points(memoryview(data)):
            if len(found) == limit:
                break
            found.append(point)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise OtlpError(f"the metrics are cut off or damaged: {error}") from None
    return found


def _points(data: memoryview) -> Iterator[Point]:
    for resource in _messages(data, _RESOURCE_METRICS):
        for scope in _messages(resource, _SCOPE_METRICS):
            for metric in _messages(scope, _METRICS):
                yield from _points_of(metric)


def _points_of(metric: memoryview) -> Iterator[Point]:
    name, holder, is_delta = "", None, False
    for field, kind, value in _fields(metric):
        if field == _NAME and kind == _BYTES:
            name = str(value, "utf-8")
        elif field in (_GAUGE, _SUM) and kind == _BYTES:
            holder = value
    if holder is None:
        return
    points: list[memoryview] = []
    for field, kind, value in _fields(holder):
        if field == _POINTS and kind == _BYTES:
            points.append(value)
        elif field == _TEMPORALITY and kind == _VARINT:
            is_delta = value == _DELTA
    for point in points:
        number, attributes = _number(point)
        if number is not None:
            yield Point(name, attributes, number, is_delta)


def _number(point: memoryview) -> tuple[float | None, tuple[tuple[str, str], ...]]:
    number: float | None = None
    attributes: list[tuple[str, str]] = []
    for field, kind, value in _fields(point):
        if field == _AS_DOUBLE and kind == _FIXED64:
            (number,) = struct.unpack("<d", value)
        elif field == _AS_INT and kind == _FIXED64:
            (number,) = struct.unpack("<q", value)
        elif field == _ATTRIBUTES and kind == _BYTES:
            attributes.append(_attribute(value))
    return number, tuple(sorted(attributes))


def _attribute(pair: memoryview) -> tuple[str, str]:
    key = text = ""
    for field, kind, value in _fields(pair):
        if field == _KEY and kind == _BYTES:
            key = str(value, "utf-8")
        elif field == _VALUE and kind == _BYTES:
            text = _any_value(value)
    return key, text


def _any_value(data: memoryview) -> str:
    for field, kind, value in _fields(data):
        if field == _STRING_VALUE and kind == _BYTES:
            return str(value, "utf-8")
        if field == _BOOL_VALUE and kind == _VARINT:
            return "true" if value else "false"
        if field == _INT_VALUE and kind == _VARINT:
            return str(value - (1 << 64) if value >> 63 else value)
        if field == _DOUBLE_VALUE and kind == _FIXED64:
            return repr(struct.unpack("<d", value)[0])
    return ""


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    return (value for field, kind, value in _fields(data) if field == wanted and kind == _BYTES)


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """(number, kind, value) of each field; a varint is a number, all else the bytes of it."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            number, position = _varint(data, position)
            yield tag >> 3, kind, number
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise OtlpError(f"a field of kind {kind}")
        if position + size > len(data):
            raise OtlpError("a field is longer than what holds it")
        yield tag >> 3, kind, data[position : position + size]
        position += size


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
