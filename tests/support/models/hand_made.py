"""Records and batches byte by byte, for what no builder writes."""

from __future__ import annotations

from odradek.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, pack_header, seal
from odradek.record.varint import zigzag
from tests.support.models.batches import NOW_MS

NO_HEADERS = b"\0"


def blob(content: bytes | None) -> bytes:
    return zigzag(-1) if content is None else zigzag(len(content)) + content


def record_bytes(
    delta: int = 0,
    *,
    time: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = NO_HEADERS,
    attributes: int = 0,
) -> bytes:
    """One record with its length; `headers` are given as they are written, with their number."""
    return framed(bytes((attributes,)) + zigzag(time) + zigzag(delta) + blob(key) + blob(value) + headers)


def framed(body: bytes) -> bytes:
    return zigzag(len(body)) + body


def header_fields(**fields: int) -> BatchHeader:
    """The header of a batch of one record from a producer without an id, but for the fields that are given."""
    usual = BatchHeader(0, HEADER_BYTES - LOG_OVERHEAD_BYTES, -1, 2, 0, 0, 0, NOW_MS, NOW_MS, -1, -1, -1, 1)
    return usual._replace(**fields)


def batch_bytes(payload: bytes, count: int = 1, **fields: int) -> bytes:
    """A batch with this payload, which need not be records; its header fits it except for the given fields."""
    fitting = {
        "batch_length": HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        "record_count": count,
        "last_offset_delta": count - 1,
    }
    batch = bytearray(pack_header(header_fields(**{**fitting, **fields})) + payload)
    seal(batch)
    return bytes(batch)
