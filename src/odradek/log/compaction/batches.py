"""Compaction of one batch. A batch that keeps all records is returned unchanged; offsets and sequence numbers never
change.

A batch that loses records keeps its first and last offset, producer and sequence number; its maximum timestamp becomes
that of the remaining records. A batch that loses all records is removed, or kept without records if it has the last
sequence number of a producer, or ends a segment.

The first cleaning that keeps a tombstone stores its delete horizon in the batch: the base timestamp has that time,
attribute bit 6 marks it, and timestamp deltas count from it. Source: KIP-534; Kafka MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.log.compaction.keys import DEAD, TOMBSTONE, OffsetMap, live_records, shifted_live_records
from odradek.log.compaction.transactions import AbortedData, OpenTransactions
from odradek.record.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    pack_header,
    seal,
    with_compression,
    with_delete_horizon,
)
from odradek.record.compression import compress
from odradek.record.control import ControlType, control_type
from odradek.record.reader import read_records, records_bytes

Batch = bytes | bytearray
NO_TIMESTAMP = -1


class LastOfProducer(NamedTuple):
    """The last offset of a producer's last batch of records (-1 if only markers are left), and its epoch."""

    last_offset: int
    producer_epoch: int


class BatchCleaner:
    """The batches of one cleaning: `add_keys` is called for each batch of the dirty part, then `clean` for each of the
    log.

    Args:
        first_dirty_offset: inclusive; all before it was cleaned earlier.
        producers: the producers whose last batch must be kept.
        now_ms: wall clock, which is compared with delete horizons.
    """

    def __init__(
        self,
        table: OffsetMap,
        aborted: AbortedData,
        *,
        first_dirty_offset: int,
        producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._table = table
        self._aborted = aborted
        self._first_dirty_offset = first_dirty_offset
        self._producers = producers
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self.transactions = OpenTransactions()
        self._number = 0
        # The end (exclusive) of the offset map, up to which batches are cleaned.
        self.end_offset = first_dirty_offset

    # -- first pass ---------------------------------------------------------------------------------------------

    def add_keys(self, header: BatchHeader, batch: bytes) -> bool:
        """Add the keys of a batch to the offset map; returns False if the map is full, which ends the first pass.

        Raises:
            ApiError: CORRUPT_MESSAGE, the batch cannot be decoded.
        """
        if header.is_control or header.record_count == 0 or self._aborted.covers(header):
            self._table.skip(header.record_count)
        else:
            data, position, end = _payload(header, batch)
            if not self._table.has_room(header.record_count, end - position):
                return False
            self._table.put_batch(data, position, end, header.record_count)
        self.end_offset = header.last_offset + 1
        return True

    # -- second pass --------------------------------------------------------------------------------------------

    def clean(self, header: BatchHeader, batch: bytes, *, keep_empty: bool) -> Batch | None:
        """Compact a batch; returns the same object if nothing is removed, None if the batch is removed.

        Args:
            keep_empty: keep the batch even without records.
        Raises:
            ApiError: CORRUPT_MESSAGE.
        """
        if header.last_offset >= self.end_offset:
            return batch
        keep_empty = keep_empty or self._is_last_of_producer(header)
        first = self._number
        if header.last_offset >= self._first_dirty_offset:
            self._number += header.record_count
        if header.is_control:
            return self._clean_control(header, batch, keep_empty=keep_empty)
        self.transactions.add(header)
        if header.record_count == 0:
            return batch if keep_empty else None
        if self._aborted.covers(header):
            return empty_batch(header) if keep_empty else None
        if header.last_offset >= self._first_dirty_offset:
            marks = self._table.marks[first : self._number]
        else:
            data, position, end = _payload(header, batch)
            marks = self._table.get_batch(data, position, end, header.record_count)
        return self._retain_marked(header, batch, marks, keep_empty=keep_empty)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if not header.has_producer_id:
            return False
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _clean_control(self, header: BatchHeader, batch: bytes, *, keep_empty: bool) -> Batch | None:
        if header.record_count == 0:
            return batch if keep_empty else None
        if control_type(read_records(batch, header)[0]) not in (ControlType.ABORT, ControlType.COMMIT):
            return batch
        if not self.transactions.end(header):
            return batch
        if not header.has_delete_horizon:
            return self._rewrite(header, batch, bytes(header.record_count), self._new_horizon_ms)
        if header.base_timestamp > self._now_ms:
            return batch
        return empty_batch(header) if keep_empty else None

    def _retain_marked(self, header: BatchHeader, batch: bytes, marks: bytearray, *, keep_empty: bool) -> Batch | None:
        tombstones = marks.count(TOMBSTONE)
        if tombstones and header.has_delete_horizon and header.base_timestamp <= self._now_ms:
            marks = marks.replace(bytes((TOMBSTONE,)), bytes((DEAD,)))
            tombstones = 0
        dead = marks.count(DEAD)
        if dead == header.record_count:
            return empty_batch(header) if keep_empty else None
        horizon_ms = self._new_horizon_ms if tombstones and not header.has_delete_horizon else None
        if not dead and horizon_ms is None:
            return batch
        return self._rewrite(header, batch, marks, horizon_ms)

    def _rewrite(self, header: BatchHeader, batch: bytes, marks: Batch, horizon_ms: int | None) -> bytearray:
        """The batch without its dead records; with a delete horizon, timestamp deltas count from it."""
        data, position, _ = _payload(header, batch)
        if horizon_ms is None:
            payload, newest = live_records(data, position, marks)
        else:
            payload, newest = shifted_live_records(data, position, marks, header.base_timestamp - horizon_ms)
        packed = compress(header.compression, payload) if header.compression else payload
        attributes = header.attributes if horizon_ms is None else with_delete_horizon(header.attributes)
        # With LogAppendTime the header's timestamp is that of every record.
        max_timestamp = header.max_timestamp if header.timestamp_type else header.base_timestamp + newest
        changed = header._replace(
            batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
            attributes=attributes,
            base_timestamp=header.base_timestamp if horizon_ms is None else horizon_ms,
            max_timestamp=max_timestamp,
            record_count=len(marks) - marks.count(DEAD),
        )
        result = bytearray(pack_header(changed))
        result += packed
        seal(result)
        return result


def empty_batch(header: BatchHeader) -> bytearray:
    """The header of a batch without its records; offsets, producer, sequence number and maximum timestamp stay."""
    emptied = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        attributes=with_compression(with_delete_horizon(header.attributes, wanted=False), 0),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    result = bytearray(pack_header(emptied))
    seal(result)
    return result


def _payload(header: BatchHeader, batch: bytes) -> tuple[bytes, int, int]:
    """(bytes of the records, start, end); uncompressed records are not copied."""
    if header.compression == 0:
        return batch, HEADER_BYTES, header.size_bytes
    data = bytes(records_bytes(batch, header))
    return data, 0, len(data)
