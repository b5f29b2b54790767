"""Record batches from records: for control records, coordinators, the metadata log, tools and tests."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.record.batch import (
    COMPRESSION_NAMES,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    batch_attributes,
    pack_header,
    seal,
)
from odradek.record.compression import compress
from odradek.record.record import Record
from odradek.record.varint import zigzag


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: str = "none",
    compression_level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One sealed batch of at least one record.

    A record with an offset of its own is put there, else one after the previous record; offsets must rise and begin at
    `base_offset` or above. Timestamps are the records'.

    Raises:
        ValueError: no record, or offsets that do not rise.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0].timestamp_ms
    offset = base_offset - 1
    pieces = []
    for record in records:
        following = record.offset if record.offset >= 0 else offset + 1
        if following <= offset:
            raise ValueError(f"offset {following} does not follow {offset}")
        offset = following
        body = encode_record(record, record.timestamp_ms - base_timestamp, offset - base_offset)
        pieces += [zigzag(len(body)), body]
    codec = COMPRESSION_NAMES.index(compression)
    payload = b"".join(pieces)
    if codec:
        payload = compress(codec, payload, level=compression_level)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=batch_attributes(
            compression=codec, timestamp_type=timestamp_type, transactional=transactional, control=control
        ),
        last_offset_delta=offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    batch = bytearray(pack_header(header) + payload)
    seal(batch)
    return bytes(batch)


def build_empty_batch(offset: int) -> bytes:
    """A sealed batch of no record that takes one offset, as compaction leaves one at the end of a log."""
    header = BatchHeader(
        base_offset=offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    batch = bytearray(pack_header(header))
    seal(batch)
    return bytes(batch)


def encode_record(record: Record, timestamp_delta_ms: int, offset_delta: int) -> bytes:
    """The bytes of one record behind its length."""
    parts = [b"\x00", zigzag(timestamp_delta_ms), zigzag(offset_delta)]
    for blob in (record.key, record.value):
        if blob is None:
            parts.append(b"\x01")
        else:
            parts += [zigzag(len(blob)), blob]
    if not record.headers:
        parts.append(b"\x00")
        return b"".join(parts)
    parts.append(zigzag(len(record.headers)))
    for name, value in record.headers:
        encoded = name.encode()
        parts += [zigzag(len(encoded)), encoded]
        if value is None:
            parts.append(b"\x01")
        else:
            parts += [zigzag(len(value)), value]
    return b"".join(parts)
