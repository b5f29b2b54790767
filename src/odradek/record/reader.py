"""Batches and records out of bytes. Work per record: not for the hot path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Buffer
from odradek.record.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, read_size
from odradek.record.compression import unpack
from odradek.record.record import Header, Record
from odradek.record.varint import read_zigzag

# Kafka's own default for max.decompressed.message.bytes.
MAX_RECORDS_BYTES = 2_147_483_639
_INT64_LIMIT = 2**63


def read_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch in `data`; a batch that is cut off at the end is left out."""
    position, end = 0, len(data)
    while end - position >= HEADER_BYTES:
        _, size = read_size(data, position)
        if size < HEADER_BYTES or size > end - position:
            return
        yield position, BatchHeader.read(data, position)
        position += size


def records_bytes(batch: Buffer, header: BatchHeader, *, max_output_bytes: int = MAX_RECORDS_BYTES) -> Buffer:
    """The records of one whole batch, decompressed.

    Raises:
        ApiError: CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, as `decompress`.
    """
    payload = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.compression == 0:
        return payload
    return unpack(header.compression, payload, max_output_bytes=max_output_bytes)


def read_records(
    batch: Buffer, header: BatchHeader | None = None, *, max_output_bytes: int = MAX_RECORDS_BYTES
) -> list[Record]:
    """All records of one whole batch, with their offsets and timestamps.

    Raises:
        ApiError: CORRUPT_MESSAGE where the bytes are not `record_count` records; else as `records_bytes`.
    """
    header = header or BatchHeader.read(batch)
    return parse_records(records_bytes(batch, header, max_output_bytes=max_output_bytes), header)


def parse_records(payload: Buffer, header: BatchHeader) -> list[Record]:
    """The records out of a batch's decompressed bytes.

    Raises:
        ApiError: CORRUPT_MESSAGE where the bytes are not `record_count` records.
    """
    data = payload if isinstance(payload, bytes) else bytes(payload)
    return [
        Record(
            _blob(data, outline.key_position, outline.key_bytes),
            _blob(data, outline.value_position, outline.value_bytes),
            tuple(_headers(data, outline.headers_position, outline.header_count)),
            outline.timestamp_ms,
            outline.offset,
        )
        for outline in outline_records(data, header)
    ]


class RecordOutline(NamedTuple):
    """The positions of one record's parts in its batch's decompressed bytes; a length of -1 is null."""

    offset: int
    timestamp_ms: int
    key_position: int
    key_bytes: int
    value_position: int
    value_bytes: int
    header_count: int
    headers_position: int


def outline_records(payload: Buffer, header: BatchHeader) -> list[RecordOutline]:
    """Parse as `parse_records` does, without objects for keys, values and headers.

    Raises:
        ApiError: CORRUPT_MESSAGE if the bytes are not `record_count` records.
    """
    data = payload if isinstance(payload, bytes | bytearray) else bytes(payload)
    outlines: list[RecordOutline] = []
    position, size = 0, len(data)
    try:
        if header.record_count < 0:
            raise ValueError(f"a batch of {header.record_count} records")
        for _ in range(header.record_count):
            length, position = read_zigzag(data, position)
            end = position + length
            outlines.append(_outline(data, position, end, header))
            position = end
        if position != size:
            raise ValueError(f"{size - position} bytes behind the last record")
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"record {len(outlines)} is malformed: {error}") from None
    return outlines


def _outline(data: bytes | bytearray, position: int, end: int, header: BatchHeader) -> RecordOutline:
    """The outline of the record from `position` to `end` (exclusive).

    A null part has a negative length. One that is too long ends behind `end`, or behind the data: one comparison at the
    end finds all of them.
    """
    timestamp_delta, position = read_zigzag(data, position + 1)
    offset_delta, position = read_zigzag(data, position)
    key_bytes, key_position = read_zigzag(data, position)
    value_bytes, value_position = read_zigzag(data, key_position + max(0, key_bytes))
    count, headers_position = read_zigzag(data, value_position + max(0, value_bytes))
    if count < 0:
        raise ValueError(f"{count} headers")
    position = headers_position
    for _ in range(count):
        name_bytes, name_position = read_zigzag(data, position)
        if name_bytes < 0:
            raise ValueError("a header without a name")
        position = name_position + name_bytes
        data[name_position:position].decode()
        content_bytes, content_position = read_zigzag(data, position)
        position = content_position + max(0, content_bytes)
    if position != end:
        raise ValueError(f"{end - position} bytes too many in a record")
    if header.timestamp_type == LOG_APPEND_TIME:
        timestamp_ms = header.max_timestamp
    else:
        timestamp_ms = header.base_timestamp + timestamp_delta
    offset = header.base_offset + offset_delta
    # Both are sums, and both go into answers as 64 bits.
    if not (-_INT64_LIMIT <= timestamp_ms < _INT64_LIMIT and -_INT64_LIMIT <= offset < _INT64_LIMIT):
        raise ValueError(f"timestamp {timestamp_ms} or offset {offset} has more than 64 bits")
    return RecordOutline(
        offset, timestamp_ms, key_position, key_bytes, value_position, value_bytes, count, headers_position
    )


def _headers(data: bytes, position: int, count: int) -> Iterator[Header]:
    """The headers from `position` on, which `_outline` has found to be whole."""
    for _ in range(count):
        name_bytes, position = read_zigzag(data, position)
        name = data[position : position + name_bytes].decode()
        length, position = read_zigzag(data, position + name_bytes)
        yield name, _blob(data, position, length)
        position += max(0, length)


def _blob(data: bytes, position: int, length: int) -> bytes | None:
    return None if length < 0 else data[position : position + length]
