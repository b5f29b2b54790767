"""Batches for tests of the log, as a client would send them."""

from __future__ import annotations

from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record

NOW_MS = 1_767_225_600_000


def batch(
    *values: bytes,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    compression: str = "none",
    transactional: bool = False,
) -> bytes:
    """One batch with a record for each value, one ms apart."""
    records = [Record(b"key", value, timestamp_ms=timestamp_ms + index) for index, value in enumerate(values)]
    return build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id < 0 or producer_epoch >= 0 else 0,
        base_sequence=sequence,
        transactional=transactional,
    )


def header_of(data: bytes) -> BatchHeader:
    return BatchHeader.read(data)
