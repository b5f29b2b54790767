"""OpenTelemetry's MetricsData, written field by field, as clients push it."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(tag: int, data: bytes) -> bytes:
    """A field of bytes."""
    return varint(tag << 3 | 2) + varint(len(data)) + data


def attribute(key: str, value: str | int) -> bytes:
    kind = field(1, value.encode()) if isinstance(value, str) else varint(3 << 3) + varint(value)
    return field(7, field(1, key.encode()) + field(2, kind))


def number(value: float, *attributes: bytes) -> bytes:
    """A data point: whole numbers as integers."""
    if isinstance(value, int):
        encoded = varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        encoded = varint(4 << 3 | 1) + struct.pack("<d", value)
    time = varint(3 << 3 | 1) + struct.pack("<Q", 1_700_000_000_000_000_000)
    return field(1, b"".join(attributes) + time + encoded)


def gauge(name: str, *points: bytes) -> bytes:
    return field(2, field(1, name.encode()) + field(5, b"".join(points)))


def total(name: str, *points: bytes, is_delta: bool) -> bytes:
    temporality = varint(2 << 3) + varint(1 if is_delta else 2)
    return field(2, field(1, name.encode()) + field(7, b"".join(points) + temporality))


def metrics_data(*metrics: bytes) -> bytes:
    """One resource with one scope."""
    resource, scope = field(1, b""), field(1, field(1, b"scope"))
    return field(1, resource + field(2, scope + b"".join(metrics)))
