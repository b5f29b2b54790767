"""One partition's log: the file of all records in order, and the five marks that say what may be seen of it.

- log_start_offset (inclusive): the first record that may be read
- log_end_offset (exclusive): the next record gets it
- recovery_point (exclusive): all below is durable
- high_watermark (exclusive): all below is committed; moved by the replica layer
- last_stable_offset (exclusive): all below is committed and belongs to no open transaction

Every method is plain and runs on the broker's loop, but for the work that `begin_flush` returns. A write moves the
log's end, then the index: a reader never sees a batch that is not whole. Source: Kafka UnifiedLog, LogSegment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import Disk, is_disk_full, is_out_of_descriptors, unless_full
from odradek.log.checkpoints import (
    TopicPartition,
)
from odradek.log.config import LogConfig
from odradek.log.durable import DurableLog
from odradek.log.files import FileCache, make_durable, no_space, rename_deleted
from odradek.log.producer_state import NOT_REQUIRED, ProducerEntry, Verification
from odradek.log.recovery import LoadedLog, forget_snapshots, load_directory, load_producers, snapshot_offsets
from odradek.log.replicated import in_portions, read_replicated
from odradek.log.retention import Deletable, count_deletable, must_roll
from odradek.log.segment import MAX_RELATIVE_OFFSET, Segment, segment_path
from odradek.log.transactions import note_batch
from odradek.record.batch import (
    BatchHeader,
    patch_base_offset,
    patch_leader_epoch,
    stamp_log_append_time,
    total_bytes,
)

MutableBatch = bytearray | memoryview


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """Where an append lies; offsets inclusive.

    Attributes:
        log_append_time_ms: the broker's time where the topic wants it, else -1.
        duplicate: the batch had been appended before; the offsets are those of then.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


RemoveLater = Callable[[list[Path], int], None]


class Log(DurableLog):
    """The log of one partition, in one directory. The caller owns locking out a second one."""

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
            loaded: what `load_directory` found.
            jitter: this log's share of segment.jitter.ms, 0 to 1.
            remove_later: takes files that may be removed after so many ms; without it they go at once.
        """
        super().__init__(files, directory, topic_partition, loaded)
        self.config = config
        self._jitter = jitter
        self._remove_later = remove_later or self._remove_now
        self._high_watermark = loaded.log_start_offset
        self.cleaned_offset = 0  # exclusive: of what lies before, compaction kept each key's last record alone
        self.cut_count = 0
        self.clear_listeners()

    @classmethod
    def open(
        cls,
        files: FileCache,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        clean_shutdown: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        jitter: float = 0.0,
        remove_later: RemoveLater | None = None,
        notes: list[str] | None = None,
    ) -> Log:
        """Load a directory, which must exist; blocks.

        `notes` takes one line for each repair of the recovery. Raises StorageError.
        """
        try:
            loaded = load_directory(
                files,
                directory,
                now_ms=now_ms,
                clean_shutdown=clean_shutdown,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                index_interval_bytes=config.index_interval_bytes,
                compacted=config.compacted,
                flush_messages=config.flush_messages,
            )
        except OSError as error:
            raise StorageError(directory.parent, f"{directory}: {error}") from error
        if notes is not None:
            notes += loaded.notes
        return cls(files, directory, topic_partition, config, loaded, jitter=jitter, remove_later=remove_later)

    # -- marks --------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop; recomputed from the open transactions, of which most logs have none."""
        unstable = self.producers.first_unstable_offset(self._high_watermark)
        if unstable is None:
            return self._high_watermark
        return min(max(unstable, self.log_start_offset), self._high_watermark)

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, never past the log's end; returns whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self._high_watermark:
            return False
        self._high_watermark = offset
        return True

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
        """Give batches their offsets and write them to the active segment, by one write.

        Only base_offset and partition_leader_epoch are patched, in place; both lie before the bytes that the CRC
        covers. With LogAppendTime the timestamp is written too, and the CRC recomputed.

        Args:
            batches: one whole batch of format v2 each, already validated.
            headers: theirs, in the same order.
            leader_epoch: under which we lead; never below the log's latest.
            now_ms: wall clock; written only for LogAppendTime, and what segment.ms is counted by.
            verification: as `ProducerState.check` takes it.
        Returns:
            The offsets of the first and last record. A single batch that is one of its producer's last five again
            gets the offsets it had.
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
            if header.producer_id >= 0 and not header.is_control:
                known = self.producers.check(header, verification)
                if known is not None and len(headers) == 1:
                    return AppendInfo(known.base_offset, known.last_offset, -1, duplicate=True)
        stamp = self.config.log_append_time
        offset = first = self.log_end_offset
        final, chunks = [], []
        for batch, header in zip(batches, headers, strict=True):
            mutable = bytearray(batch) if isinstance(batch, bytes) or memoryview(batch).readonly else batch
            patch_base_offset(mutable, offset)
            patch_leader_epoch(mutable, leader_epoch)
            if stamp and not header.is_control:
                stamp_log_append_time(mutable, now_ms)
                header = BatchHeader.read(mutable)
            else:
                header = header.placed(offset, leader_epoch)
            final.append(header)
            chunks.append(mutable)
            offset = header.last_offset + 1
        self._append(chunks, final, now_ms)
        return AppendInfo(first, offset - 1, now_ms if stamp else -1)

    def append_as_follower(
        self, data: bytes | MutableBatch, *, now_ms: int, leader_epoch: int = 2**31 - 1
    ) -> AppendInfo | None:
        """Append what the leader of `leader_epoch` sent, offsets and epochs as they are; None for no whole batch.

        Raises:
            ApiError: CORRUPT_MESSAGE, as `read_replicated`; nothing was written. KAFKA_STORAGE_ERROR. StorageError.
        """
        start, end, latest = self.log_start_offset, self.log_end_offset, self.epochs.latest_epoch
        batches = read_replicated(
            data, next_offset=end, latest_epoch=latest, leader_epoch=leader_epoch, is_empty=start == end
        )
        if not batches:
            return None
        first = batches[0][1].base_offset
        if first < end:
            # The leader's log begins inside this batch (DeleteRecords); the files begin with the batch.
            self.truncate_fully_and_start_at(first, now_ms=now_ms)
        for portion in in_portions(batches, self.config.segment_bytes):
            self._append([chunk for chunk, _ in portion], [header for _, header in portion], now_ms)
        self.log_start_offset = max(self.log_start_offset, start)
        return AppendInfo(first, self.log_end_offset - 1)

    def _append(self, chunks: Sequence[MutableBatch], headers: Sequence[BatchHeader], now_ms: int) -> None:
        size = total_bytes(headers)
        try:
            self._assign_epochs(headers)
            if must_roll(self._segments[-1], size, headers, self.config, jitter=self._jitter, now_ms=now_ms):
                if headers[-1].last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET:
                    # A gap that compaction left: from our end on, an index could not count so far (KAFKA-6264).
                    self.skip_to(headers[0].base_offset, now_ms)
                else:
                    self.roll(now_ms)
            segment = self._segments[-1]
            position = segment.write(chunks)
        except (ApiError, OSError) as error:
            if isinstance(error, OSError) and not is_out_of_descriptors(error):
                raise StorageError(self.log_dir, f"{self.directory}: {error}") from error
            if self.epochs.truncate_from_end(self.log_end_offset + 1):
                self._epochs_are_written = False  # they speak of batches that did not come
            if isinstance(error, OSError):
                raise self._files.no_space(self.log_dir, error) from None
            raise
        # Before anything else may fail: an offset that is on disk is never given again (KAFKA-7866).
        self.log_end_offset = headers[-1].last_offset + 1
        for chunk, header in zip(chunks, headers, strict=True):
            segment.index_batch(header, position, self.config.index_interval_bytes)
            position += header.size_bytes
            if header.producer_id < 0:
                self.producers.map_end_offset = header.last_offset + 1
            elif header.is_control:
                note_batch(self.producers, segment, chunk, header, self.last_stable_offset)
                if segment.transactions.entries:
                    self._summary.noted_aborted()
            else:
                self.producers.update(header)

    def _assign_epochs(self, headers: Sequence[BatchHeader]) -> None:
        """Note the epochs that begin with these batches, before they are written."""
        for header in headers:
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.assign_epoch(header.partition_leader_epoch, header.base_offset)
        if self._was_cut and not self._epochs_are_written:
            self._write_epochs()
            if not self._epochs_are_written:
                raise no_space(self.log_dir)

    # -- rolling ------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new active segment at the log's end, and keep the producers' state beside it.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, no space; the log is as before. StorageError.
        """
        active = self._segments[-1]
        if active.size_bytes == 0 and active.base_offset == self.log_end_offset:
            return
        try:
            active.note_newest()
            active.flush_indexes()
            self._take_snapshot()
            segment = Segment(self._files, self.directory, self.log_end_offset, created_ms=now_ms)
            segment.open(create=True)
        except OSError as error:
            if is_disk_full(error):
                raise self._files.no_space(self.log_dir, error) from None
            raise StorageError(self.log_dir, f"{self.directory}: {error}") from error
        active.seal()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._summary.rolled(active)

    def active_producers(self) -> list[ProducerEntry]:
        """Every producer that the log remembers."""
        return list(self.producers.producers.values())

    # -- cutting ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop all records at or above `offset`; returns whether there were any. Raises StorageError."""
        if offset >= self.log_end_offset:
            # A leader that wrote nothing left its epoch at the end, and would be asked to truncate there for ever.
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._write_epochs()
            return False
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            while len(self._segments) > 1 and self._bases[-1] >= offset:
                self._drop(self._segments.pop())
                self._bases.pop()
            segment = self._segments[-1]
            found = segment.locate(offset)
            if found is not None:
                segment.truncate_to(found[0], offset)
            segment.sync_with_names()
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self._after_cut()
        except OSError as error:
            raise StorageError(self.log_dir, f"{self.directory}: {error}") from error
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drop everything and begin at `offset`. Raises StorageError."""
        try:
            for segment in self._segments:
                self._drop(segment)
            fresh = Segment(self._files, self.directory, offset, created_ms=now_ms)
            fresh.open(create=True)
            fresh.sync_with_names()
            self._segments[:], self._bases[:] = [fresh], [offset]
            self.log_start_offset = self.log_end_offset = offset
            self.epochs.clear()
            for snapshot in snapshot_offsets(self._files.disk, self.directory):
                self._files.disk.remove(segment_path(self.directory, snapshot, ".snapshot"))
            self._after_cut()
        except OSError as error:
            raise StorageError(self.log_dir, f"{self.directory}: {error}") from error

    def _after_cut(self) -> None:
        self._was_cut = True
        self._summary.cut()
        end = self.log_end_offset
        self.recovery_point = min(self.recovery_point, end)
        self.cut_count += 1
        self.on_cut()
        if self.cleaned_offset > end:
            self.cleaned_offset = end
            self.on_cleaned_cut()
        self._high_watermark = min(max(self._high_watermark, self.log_start_offset), end)
        self.epochs.truncate_from_end(end)
        self._write_epochs()
        self.producers = load_producers(self._files.disk, self.directory, self._segments, end, [])

    def replace_segments(self, old: Sequence[Segment], swap: Callable[[], tuple[Segment, list[Path]]]) -> bool:
        """Put one segment in the place of several closed ones; False, and nothing is done, where they are gone.

        `swap` changes the files, and returns the new segment and the old ones' files, which are to be removed.
        """
        end = bisect_right(self._bases, old[-1].base_offset)
        first = end - len(old)
        if first < 0 or end == len(self._segments) or self._segments[first:end] != list(old):
            return False
        try:
            fresh, removed = swap()
        except OSError as error:
            raise StorageError(self.log_dir, f"{self.directory}: {error}") from error
        self._segments[first:end], self._bases[first:end] = [fresh], [fresh.base_offset]
        self._summary.replaced(first, self._bases[first + 1])
        self._remove_later(removed, self.config.file_delete_delay_ms)
        return True

    def _drop(self, segment: Segment) -> None:
        self._remove_later(segment.mark_deleted(), self.config.file_delete_delay_ms)

    def _remove_now(self, paths: list[Path], delay_ms: int) -> None:
        for path in paths:
            self._files.disk.remove(path)

    # -- retention ----------------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> bool:
        """Nothing below `offset` may be read any more; returns whether that is new.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self._high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"log start {offset} would pass the high watermark {self._high_watermark} of {self.topic_partition}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        # In memory alone: entries below the start do no harm, are cut at the next start, and cost an fsync here.
        self.epochs.truncate_from_start(offset)
        return True

    def deletable(self, now_ms: int) -> Deletable:
        """Which segments retention or the log start leaves behind; what it has not read yet must be loaded before."""
        return count_deletable(
            self._segments,
            [self.end_of(segment) for segment in self._segments],
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self._high_watermark,
        )

    def begin_delete(self, count: int, now_ms: int) -> Callable[[], list[Path] | None]:
        """Let go of so many segments from the front, at once; the work that follows off the loop renames their files.

        A crash before that leaves segments that retention finds again. Hand what the work returns to `finish_delete`.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, no space for the new segment where all are to go. StorageError.
        """
        if count == len(self._segments):
            self.roll(now_ms)
        dropped = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        self._summary.dropped()
        paths = [path for segment in dropped for path in segment.paths()]
        for segment in dropped:
            segment.forget()
        self.advance_log_start(max(self.log_start_offset, self._bases[0]))
        directory, base = self.directory, self._bases[0]

        def job(disk: Disk) -> list[Path]:
            # The producers' state up to here must not be lost with what else would.
            make_durable(disk, [], [segment_path(directory, base, ".snapshot")], [directory])
            renamed = rename_deleted(disk, paths)
            forget_snapshots(disk, directory, base)
            return renamed

        return self.work(job)

    def finish_delete(self, renamed: list[Path] | None) -> None:
        """The files have their new names; they are removed after file.delete.delay.ms."""
        if renamed and not self.has_left:
            self._remove_later(renamed, self.config.file_delete_delay_ms)

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop what retention or the log start leaves behind; returns how many segments. Blocks."""
        while (unread := (found := self.deletable(now_ms)).unread) is not None:
            unread.load_indexes()
        if found.segment_count:
            self.finish_delete(self.begin_delete(found.segment_count, now_ms)())
        return found.segment_count

    # -- moving -------------------------------------------------------------------------------------------------

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Nothing lies from the log's end to `offset`, which the next record gets. Raises as `roll`."""
        before, self.log_end_offset = self.log_end_offset, offset
        try:
            self.roll(now_ms)
        except ApiError:
            self.log_end_offset = before
            raise
        self.producers.map_end_offset = offset

    def take_place_of(self, other: Log) -> None:
        """Take over the marks of a log that has the same batches up to the same end, and what memory alone has of it,
        such as what its producers are about to do."""
        assert self.log_end_offset == other.log_end_offset, "a log is replaced by one that has all of it"
        self.log_start_offset = max(self.log_start_offset, other.log_start_offset)
        self.update_high_watermark(other.high_watermark)
        self.take_epochs_of(other)
        self.producers = other.producers
        self.on_damage = other.on_damage
        self.config = other.config
        self.last_flush_ms = other.last_flush_ms

    def leave(self) -> None:
        super().leave()
        self.clear_listeners()

    def clear_listeners(self) -> None:
        """Drop the listeners of truncations and damage. They and the log form reference cycles: of thousands
        that are deleted, all would be garbage that Python's collector must find, in one turn of the loop."""
        self.on_cleaned_cut: Callable[[], None] = _nothing
        self.on_cut: Callable[[], None] = _nothing
        self.on_damage = _not_mended

    # -- ending -------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Let go of the files; a clean close makes all durable first and blocks. Raises StorageError."""
        if clean:
            try:
                self._segments[-1].load_indexes()
                # Without space for them the next start reads more of the log, and no more: the same after a loss of
                # power, so that this snapshot is not synced.
                if self.log_end_offset > self._bases[0]:
                    unless_full(self._take_snapshot)
                    self._unsynced_snapshots[-1:] = []
                for segment in self._segments:
                    unless_full(segment.flush_indexes)
            except OSError as error:
                raise StorageError(self.log_dir, f"{self.directory}: {error}") from error
            self.flush()
        self._files.forget_below(self.directory)


def _nothing() -> None:
    """No listener."""


def _not_mended(segment: Segment, position: int) -> bool:
    """No repair."""
    return False
