"""Conversion of coordinator records to record batches and back: the content of a partition of a coordinator's topic.

A `RecordCodec` defines a record's key and value. This module builds the batches: plain records together, those of one
producer's transaction together, and each marker that ends a transaction in a batch of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Buffer
from odradek.record.batch import NO_PRODUCER_ID, BatchHeader
from odradek.record.builder import build_batch
from odradek.record.control import ControlType, control_type
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record

_log = get_logger("coordinator.batches")

# The size of a batch's header and the framing of one record, in addition to key and value.
RECORD_OVERHEAD_BYTES = 32
# How many records are encoded in one step, some 5 us each.
RECORDS_PER_STEP = 1000
BATCH_OVERHEAD_BYTES = 128

RecordT = TypeVar("RecordT")


class EncodedRecord(NamedTuple):
    """The bytes of a record, and the producer of its transaction; a `value` of None is a tombstone."""

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    is_control: bool = False


class RecordCodec(Protocol[RecordT]):
    """The encoding of one kind of coordinator's records."""

    @property
    def topic(self) -> str:
        """The topic of the records."""
        ...

    def encode(self, record: RecordT, /) -> EncodedRecord: ...

    def decode(self, key: bytes, value: bytes | None, header: BatchHeader, /) -> RecordT | None:
        """Decode a record; None for a kind of record of another coordinator. Raises ProtocolError."""
        ...

    def decode_marker(self, header: BatchHeader, committed: bool, /) -> RecordT | None:
        """The record for the end of a transaction; None if it has no effect here."""
        ...


def encode_batches(
    codec: RecordCodec[RecordT], records: Sequence[RecordT], *, atomic: bool, max_batch_bytes: int, now_ms: int
) -> Generator[None, None, list[bytes]]:
    """Encode one operation's records as batches with offsets from 0, in steps; an atomic operation gets one batch.

    Raises:
        ApiError: RECORD_LIST_TOO_LARGE for an atomic operation, MESSAGE_TOO_LARGE for one record, that does not fit.
    """
    batches: list[bytes] = []
    pending: list[Record] = []
    owner = EncodedRecord(b"", None)
    size = BATCH_OVERHEAD_BYTES
    for number, record in enumerate(records, 1):
        if number % RECORDS_PER_STEP == 0:
            yield
        encoded = codec.encode(record)
        record_size = RECORD_OVERHEAD_BYTES + len(encoded.key) + len(encoded.value or b"")
        if BATCH_OVERHEAD_BYTES + record_size > max_batch_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"a record of {record_size} bytes does not fit into a batch")
        if pending and (size + record_size > max_batch_bytes or encoded[2:] != owner[2:] or encoded.is_control):
            if atomic:
                raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(records)} records do not fit into one batch")
            batches.append(_build(pending, owner))
            pending, size = [], BATCH_OVERHEAD_BYTES
        owner = encoded
        pending.append(Record(encoded.key, encoded.value, timestamp_ms=now_ms))
        size += record_size
    if pending:
        batches.append(_build(pending, owner))
    return batches


def _build(records: Sequence[Record], owner: EncodedRecord) -> bytes:
    return build_batch(
        records,
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
        transactional=owner.producer_id > NO_PRODUCER_ID,
        control=owner.is_control,
    )


def decode_batches(codec: RecordCodec[RecordT], data: Buffer) -> tuple[list[tuple[int, RecordT]], int]:
    """Decode whole batches; returns (offset, record) pairs and the offset behind the last batch (-1: none).

    A record that cannot be decoded is skipped with a warning: another release may have written it, and it must not
    make the coordinator of all other groups or transactions unavailable.
    """
    records: list[tuple[int, RecordT]] = []
    next_offset = -1
    view = memoryview(data)
    for position, header in read_batches(data):
        batch = view[position : position + header.size_bytes]
        records += _decode_batch(codec, batch, header)
        next_offset = header.last_offset + 1
    return records, next_offset


def _decode_batch(codec: RecordCodec[RecordT], batch: Buffer, header: BatchHeader) -> list[tuple[int, RecordT]]:
    decoded: list[tuple[int, RecordT]] = []
    for record in read_records(batch, header):
        if header.is_control:
            kind = control_type(record)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                end = codec.decode_marker(header, kind is ControlType.COMMIT)
                if end is not None:
                    decoded.append((record.offset, end))
            continue
        try:
            if record.key is None:
                raise ProtocolError("a record without a key")
            message = codec.decode(record.key, record.value, header)
        except ProtocolError as error:
            _log.warning(
                "invalid record in a coordinator's partition skipped",
                topic=codec.topic,
                offset=record.offset,
                error=error,
            )
            continue
        if message is not None:
            decoded.append((record.offset, message))
    return decoded
