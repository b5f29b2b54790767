"""One partition's log: its records in order, and the offsets that bound what is readable, committed and durable.

- log_start_offset (inclusive): the first readable record
- log_end_offset (exclusive): the offset that the next record gets
- recovery_point (exclusive): all records below are durable; `flush_state` holds it
- high_watermark (exclusive): all records below are committed; the replica layer advances it
- last_stable_offset (exclusive): all records below are committed, and no transaction is open below

A log consists of its directory (`partition_dir`), segments (`segment_list`), producers (`producer_state`), leader
epochs (`epoch_cache`) and flushes (`flush_state`); none of these imports this module. `Log` appends, reads, and holds
the offsets. Other modules hold the operations on a `Log`: replication in `follower_append`, `truncation`, `retention`,
`search`, compaction in `compaction/`, copies between log directories in `future`.

Every method runs on the broker's loop without awaiting; only the work that `begin_flush` returns runs elsewhere. The
log end offset advances after the write, so no reader sees part of a batch. Source: Kafka UnifiedLog, LogSegment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import is_out_of_descriptors
from odradek.common.topic_names import TopicPartition
from odradek.log.append_info import NOTHING, AppendInfo, ReadResult
from odradek.log.config import LogConfig
from odradek.log.damage import DamageReports
from odradek.log.files import FileCache, no_space, remove_now
from odradek.log.flush_state import FlushState
from odradek.log.partition_dir import PartitionDir
from odradek.log.producer_state import NOT_REQUIRED, Verification
from odradek.log.recovery import LoadedLog
from odradek.log.rolling import must_roll, roll_before
from odradek.log.segment import DamagedBatchError, Segment
from odradek.log.segment_list import SegmentList
from odradek.log.transactions import apply_control_batch
from odradek.record.batch import (
    BatchHeader,
    patch_place,
    stamp_log_append_time,
    total_bytes,
)

MutableBatch = bytearray | memoryview
RemoveLater = Callable[[list[Path], int], None]


class Log:
    """The log of one partition in one directory. The caller makes sure that no other `Log` uses the directory.

    Attributes:
        cleaned_offset: the end (exclusive) of the part in which compaction left one record for each key.
        truncation_count: how often records were removed from the end.
        on_truncated: called at each truncation, and when the log start offset moves back.
        on_cleaned_range_truncated: called at a truncation to an offset below `cleaned_offset`.
    """

    def __init__(
        self,
        files: FileCache,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        jitter: float = 0.0,
        remove_later: RemoveLater | None = None,
    ) -> None:
        """
        Args:
            loaded: the result of `load_directory`.
            jitter: this log's share of segment.jitter.ms, 0 to 1.
            remove_later: removes files after a delay in ms; None removes them at once.
        """
        self.topic_partition = topic_partition
        self.config = config
        self.partition_dir = PartitionDir(files, directory)
        self.segments = SegmentList(self.partition_dir, loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.flush_state = FlushState(self.partition_dir, self.segments, self.epochs, loaded)
        self.damage = DamageReports(topic_partition, self.segments.summary)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.cleaned_offset = 0
        self.truncation_count = 0
        self._jitter = jitter
        self._remove_later = remove_later or partial(remove_now, files.disk)
        self._clear_listeners()
        self._check_offsets()

    @property
    def directory(self) -> Path:
        return self.partition_dir.path

    @property
    def log_dir(self) -> Path:
        """One of log.dirs."""
        return self.partition_dir.log_dir

    @property
    def is_detached(self) -> bool:
        """Whether the directory no longer belongs to a partition, or its disk failed."""
        return self.partition_dir.is_detached

    @property
    def size_bytes(self) -> int:
        return self.segments.summary.size_bytes

    # -- marks --------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The end (exclusive) for READ_COMMITTED, computed from the open transactions, of which most logs have none."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def recovery_point(self) -> int:
        """The offset (exclusive) below which all records are durable."""
        return self.flush_state.recovery_point

    @property
    def unflushed_count(self) -> int:
        """The number of records that are not durable, which a loss of power may lose."""
        return self.log_end_offset - self.flush_state.recovery_point

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, never past the log's end; returns whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def advance_log_start(self, offset: int) -> bool:
        """Advance the log start offset to `offset`, never back; returns whether it moved.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"log start {offset} would pass the high watermark {self.high_watermark} of {self.topic_partition}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        # In memory only: on disk, entries below the start do no harm until the next start, and a write costs an fsync.
        self.epochs.truncate_from_start(offset)
        self._check_offsets()
        return True

    def reset_offsets(self, start_offset: int, end_offset: int) -> None:
        """Set the log start and end offsets after `truncation` has truncated the segments."""
        self.log_start_offset, self.log_end_offset = start_offset, end_offset
        self.flush_state.truncated(end_offset)
        self.high_watermark = min(max(self.high_watermark, start_offset), end_offset)
        self._check_offsets()

    def _check_offsets(self) -> None:
        """Assert the order of the offsets; appends and advances of the high watermark cannot break it."""
        end = self.log_end_offset
        assert self.segments.bases[-1] <= end, "the active segment begins inside the log"
        assert self.log_start_offset <= end and self.high_watermark <= end, "marks lie inside the log"
        assert self.flush_state.recovery_point <= end, "only what is in the log is durable"

    # -- appending ----------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: Sequence[MutableBatch | bytes],
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None = NOT_REQUIRED,
    ) -> AppendInfo:
        """Assign offsets to batches and append them to the active segment with one write.

        Only base_offset and partition_leader_epoch are patched, in place; both lie before the bytes that the CRC
        covers. With LogAppendTime the timestamp is written too, and the CRC recomputed.

        Args:
            batches: one whole, validated batch of format v2 each.
            headers: the batches' headers, in the same order.
            leader_epoch: this leader's epoch; never below the log's latest.
            now_ms: wall clock; the timestamp of LogAppendTime, and the clock of segment.ms.
            verification: as `ProducerState.check` takes it.
        Returns:
            The offsets of the first and last record (inclusive). A single batch that repeats one of its producer's
            last five is not appended; the result has its first offsets.
        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE,
                KAFKA_STORAGE_ERROR (disk full; nothing was written).
            StorageError: the write failed; this directory must go offline.
        Durability: in the page cache on return; survives a loss of power after a flush.
        Concurrency: no await; atomic on the broker's loop.
        Source: KIP-98, KIP-101; Kafka UnifiedLog.append.
        """
        size = total_bytes(headers)
        if size > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes are more than segment.bytes={self.config.segment_bytes} of {self.topic_partition}",
            )
        for header in headers:
            # Markers have no sequence: the transaction coordinator writes each at least once.
            if header.producer_id >= 0 and not header.is_control:
                known = self.producers.check(header, verification)
                if known is not None and len(headers) == 1:
                    return AppendInfo(known.base_offset, known.last_offset, -1, duplicate=True)
        first, stamp_ms = self.log_end_offset, now_ms if self.config.log_append_time else -1
        chunks, placed = self._assign_offsets(batches, headers, leader_epoch, stamp_ms)
        self.append_with_offsets(chunks, placed, now_ms)
        return AppendInfo(first, self.log_end_offset - 1, stamp_ms)

    def _assign_offsets(
        self, batches: Sequence[MutableBatch | bytes], headers: Sequence[BatchHeader], leader_epoch: int, stamp_ms: int
    ) -> tuple[list[MutableBatch], list[BatchHeader]]:
        """Copies of the batches and headers with offsets from the log end on; writable batches change in place.

        `stamp_ms` is the timestamp of LogAppendTime in ms; -1 keeps the timestamps of the producers.
        """
        offset = self.log_end_offset
        chunks: list[MutableBatch] = []
        assigned: list[BatchHeader] = []
        assert len(batches) == len(headers)
        for number, batch in enumerate(batches):
            mutable = bytearray(batch) if isinstance(batch, bytes) or memoryview(batch).readonly else batch
            header = headers[number].with_offset(offset, leader_epoch)
            patch_place(mutable, header)
            if stamp_ms >= 0 and not header.is_control:
                stamp_log_append_time(mutable, stamp_ms)
                header = BatchHeader.read(mutable)
            chunks.append(mutable)
            assigned.append(header)
            offset = header.last_offset + 1
        return chunks, assigned

    def append_with_offsets(self, chunks: Sequence[MutableBatch], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Write batches that have their offsets and leader epochs. Raises as `append_as_leader`."""
        size, segments = total_bytes(headers), self.segments
        assert headers[0].base_offset >= self.log_end_offset, "no offset is given twice"
        try:
            self._assign_epochs(headers)
            if must_roll(segments.active, size, headers, self.config, jitter=self._jitter, now_ms=now_ms):
                roll_before(self, headers, now_ms)
            segment = segments.active
            position = segment.write(chunks)
        except (ApiError, OSError) as error:
            self._append_failed(error)
        # Before anything else may fail: an offset that is on disk is never given again (KAFKA-7866).
        self.log_end_offset = headers[-1].last_offset + 1
        for number, header in enumerate(headers):
            segment.index_batch(header, position, self.config.index_interval_bytes)
            position += header.size_bytes
            if header.producer_id < 0:
                self.producers.map_end_offset = header.last_offset + 1
                if header.is_control:
                    self.producers.remove_ended()
            elif header.is_control:
                apply_control_batch(self.producers, segment, chunks[number], header, self.last_stable_offset)
                if segment.indexes.transactions.entries:
                    segments.summary.record_aborted()
            else:
                self.producers.update(header)

    def _assign_epochs(self, headers: Sequence[BatchHeader]) -> None:
        """Record the leader epochs that begin with these batches, before they are written."""
        for header in headers:
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.assign_epoch(header.partition_leader_epoch, header.base_offset)
        flushes = self.flush_state
        if flushes.was_truncated and not flushes.epochs_are_written:
            flushes.write_epochs()
            if not flushes.epochs_are_written:
                raise no_space(self.log_dir)

    def _append_failed(self, error: ApiError | OSError) -> NoReturn:
        """Revert the epochs of batches that were not written. Raises as `append_as_leader`."""
        if isinstance(error, OSError) and not is_out_of_descriptors(error):
            raise self.partition_dir.failed(error) from error
        if self.epochs.truncate_from_end(self.log_end_offset + 1):
            self.flush_state.epochs_are_written = False  # they speak of batches that did not come
        if isinstance(error, OSError):
            raise self.partition_dir.files.no_space(self.log_dir, error) from None
        raise error

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Record that a leader epoch begins at `start_offset`. It is durable before the recovery point passes its
        records: followers truncate by it, and recovery reads epochs only from records behind the recovery point."""
        if self.epochs.assign(leader_epoch, start_offset):
            self.flush_state.epoch_began()

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was written; -1 where unknown."""
        return self.epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the asked one, its end offset exclusive); (-1, -1) where undefined (KIP-279)."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # -- reading ------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, upper_offset: int | None = None, at_least_one: bool = True
    ) -> ReadResult:
        """Batches from the one that holds `offset` on, out of one segment.

        Args:
            upper_offset: exclusive; None for the log end offset. Batches that reach beyond are omitted.
            at_least_one: the first batch is returned whole, even when it is larger than `max_bytes`.
        Returns:
            Slices of at most `max_bytes`; the last batch may be incomplete, as Kafka's clients expect.
        Raises:
            ApiError: OFFSET_OUT_OF_RANGE below the log start or above the log end; CORRUPT_MESSAGE where the first
                batch is damaged.
            StorageError: the read failed; this directory must go offline.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}] of {self.topic_partition}",
            )
        upper = self.log_end_offset if upper_offset is None else min(upper_offset, self.log_end_offset)
        if offset >= upper or (max_bytes <= 0 and not at_least_one):
            return NOTHING
        try:
            return self._read(offset, max_bytes, upper, at_least_one)
        except DamagedBatchError as damage:
            raise self.damage.report(damage.segment, damage.position, offset) from None
        except OSError as error:
            raise self.partition_dir.failed(error) from error

    def _read(self, offset: int, max_bytes: int, upper: int, at_least_one: bool) -> ReadResult:
        for segment in self.segments.from_offset(offset):
            if segment.base_offset >= upper:
                break
            found = segment.last_batch_with(offset) or segment.locate(offset)
            if found is None:
                if segment.scan_end < segment.size_bytes:
                    raise DamagedBatchError(segment, segment.scan_end)
                continue  # compaction left nothing of this segment from the offset on
            position, first = found
            if first.base_offset >= upper:
                break
            end_offset = self.segments.end_of(segment, self.log_end_offset)
            piece = segment.read(
                position,
                first,
                max_bytes=max_bytes,
                end_position=segment.size_bytes if upper >= end_offset else segment.position_of(upper),
                offset=offset,
                end_offset=end_offset,
                at_least_one=at_least_one,
            )
            return NOTHING if piece is None else ReadResult([piece], piece.length)
        return NOTHING

    def end_of(self, segment: Segment) -> int:
        """The offset (exclusive) at which a segment of this log ends."""
        return self.segments.end_of(segment, self.log_end_offset)

    # -- flushing, detaching -----------------------------------------------------------------------------------

    def remove_later(self, paths: list[Path]) -> None:
        """Remove files that the log no longer uses, after file.delete.delay.ms."""
        self._remove_later(paths, self.config.file_delete_delay_ms)

    def begin_flush(self) -> tuple[int, Callable[[], None]]:
        """Prepare a flush of the log up to its present end.

        Returns:
            (end offset, blocking function to run off the loop); then call `finish_flush(end offset)`. The function
            raises StorageError, after which the directory is offline and must not be flushed again.
        """
        return self.log_end_offset, self.flush_state.begin(self.log_end_offset)

    def finish_flush(self, end_offset: int) -> None:
        """Advance the recovery point after the function of `begin_flush` has run. Raises StorageError."""
        self.flush_state.finish(end_offset, self.log_end_offset)

    def flush(self) -> None:
        """Flush the whole log; blocks. For start, shutdown and tools."""
        end, work = self.begin_flush()
        work()
        self.finish_flush(end)

    def detach(self) -> None:
        """Detach the log from its directory, which may be renamed or removed while a flush or compaction runs."""
        self.partition_dir.is_detached = True
        self._clear_listeners()

    def _clear_listeners(self) -> None:
        # Listeners and the log form reference cycles. After thousands of deletions Python's garbage collector would
        # have to find them all in one iteration of the loop.
        self.on_cleaned_range_truncated: Callable[[], None] = _no_op
        self.on_truncated: Callable[[], None] = _no_op
        self.damage.clear_listener()


def _no_op() -> None:
    """No listener."""
