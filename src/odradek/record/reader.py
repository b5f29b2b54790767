"""Batches and records out of bytes. Work per record: not for the hot path."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Buffer
from odradek.record.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, read_size
from odradek.record.compression import decompress
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
    return decompress(header.compression, payload, max_output_bytes=max_output_bytes)


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
    data = memoryview(bytes(payload))
    records: list[Record] = []
    position = 0
    try:
        if header.record_count < 0:
            raise ValueError(f"a batch of {header.record_count} records")
        for _ in range(header.record_count):
            length, position = read_zigzag(data, position)
            end = position + length
            if length < 0 or end > len(data):
                raise ValueError("a record is longer than its batch")
            records.append(_read_record(data[position:end], header))
            position = end
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes behind the last record")
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"record {len(records)} is malformed: {error}") from None
    return records


def _read_record(data: memoryview, header: BatchHeader) -> Record:
    timestamp_delta, position = read_zigzag(data, 1)
    offset_delta, position = read_zigzag(data, position)
    key, position = _read_blob(data, position)
    value, position = _read_blob(data, position)
    count, position = read_zigzag(data, position)
    if count < 0 or count > len(data):
        raise ValueError(f"{count} headers")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_blob(data, position)
        if name is None:
            raise ValueError("a header without a name")
        content, position = _read_blob(data, position)
        headers.append((name.decode(), content))
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes too many in a record")
    if header.timestamp_type == LOG_APPEND_TIME:
        timestamp_ms = header.max_timestamp
    else:
        timestamp_ms = header.base_timestamp + timestamp_delta
    offset = header.base_offset + offset_delta
    # Both are sums, and both go into answers as 64 bits.
    if not (-_INT64_LIMIT <= timestamp_ms < _INT64_LIMIT and -_INT64_LIMIT <= offset < _INT64_LIMIT):
        raise ValueError(f"timestamp {timestamp_ms} or offset {offset} has more than 64 bits")
    return Record(key, value, tuple(headers), timestamp_ms, offset)


def _read_blob(data: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_zigzag(data, position)
    if length < 0:
        return None, position
    if length > len(data) - position:
        raise ValueError("a field is longer than its record")
    return bytes(data[position : position + length]), position + length
