"""Coordinator records to record batches and back: what lies in a partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Buffer
from odradek.coordinator.group.records import (
    NO_PRODUCER_ID,
    CoordinatorRecord,
    TransactionEndRecord,
    decode_record,
    encode_record,
)
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.control import ControlType, control_type
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record

_log = get_logger("coordinator.batches")

# Room for a batch's header and the framing of one record, on top of key and value.
RECORD_OVERHEAD_BYTES = 32
BATCH_OVERHEAD_BYTES = 128


def encode_batches(
    records: Sequence[CoordinatorRecord], *, atomic: bool, max_batch_bytes: int, now_ms: int
) -> list[bytes]:
    """The batches that carry one operation's records, with offsets from 0: one where it is atomic.

    Raises:
        ApiError: RECORD_LIST_TOO_LARGE where an atomic operation, MESSAGE_TOO_LARGE where one record does not fit.
    """
    batches: list[bytes] = []
    pending: list[Record] = []
    size = BATCH_OVERHEAD_BYTES
    for record in records:
        assert not isinstance(record, TransactionEndRecord), "markers are the transaction coordinator's"
        key, value = encode_record(record)
        record_size = RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
        if BATCH_OVERHEAD_BYTES + record_size > max_batch_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"a record of {record_size} bytes does not fit into a batch")
        if pending and size + record_size > max_batch_bytes:
            if atomic:
                raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(records)} records do not fit into one batch")
            batches.append(build_batch(pending))
            pending, size = [], BATCH_OVERHEAD_BYTES
        pending.append(Record(key, value, timestamp_ms=now_ms))
        size += record_size
    if pending:
        batches.append(build_batch(pending))
    return batches


def decode_batches(data: Buffer) -> tuple[list[tuple[int, CoordinatorRecord]], int]:
    """The records of the whole batches in `data` with their offsets, and the offset behind the last batch (-1: none).

    A record that is not ours to read is left out with a warning: another release may have written it, and what it
    says of its group must not cost the other groups their coordinator.
    """
    records: list[tuple[int, CoordinatorRecord]] = []
    next_offset = -1
    view = memoryview(data)
    for position, header in read_batches(data):
        batch = view[position : position + header.size_bytes]
        records += _decode_batch(batch, header)
        next_offset = header.last_offset + 1
    return records, next_offset


def _decode_batch(batch: Buffer, header: BatchHeader) -> list[tuple[int, CoordinatorRecord]]:
    decoded: list[tuple[int, CoordinatorRecord]] = []
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in read_records(batch, header):
        if header.is_control:
            kind = control_type(record)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                end = TransactionEndRecord(header.producer_id, kind is ControlType.COMMIT)
                decoded.append((record.offset, end))
            continue
        try:
            if record.key is None:
                raise ProtocolError("a record without a key")
            message = decode_record(record.key, record.value, producer_id)
        except ProtocolError as error:
            _log.warning("a record of __consumer_offsets is left out", offset=record.offset, error=error)
            continue
        if message is not None:
            decoded.append((record.offset, message))
    return decoded
