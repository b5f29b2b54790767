"""The recovery point of a log, and the state that its next flush makes durable.

This includes batches, directory names, indexes of closed segments, producer snapshots, and the leader epochs. The
epochs must be durable before the recovery point passes their records: a start reads epochs only from records behind it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from odradek.common.ports import Disk, ignore_disk_full, is_disk_full
from odradek.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, write_lines, write_lines_if_space
from odradek.log.config import LogConfig
from odradek.log.epoch_cache import EpochCache
from odradek.log.files import SharedFile, make_durable
from odradek.log.partition_dir import PartitionDir
from odradek.log.producer_state import ProducerState
from odradek.log.recovery import LoadedLog, snapshot_offsets
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.log.segment_list import SegmentList


class FlushState:
    """The recovery point of one log, and the state that a loss of power would lose.

    Attributes:
        recovery_point: all records below (exclusive) are durable. It may be below the log start: deleted records need
            no flush.
        epochs_are_written: whether the checkpoint of leader epochs is current.
        was_truncated: whether the log was truncated since the last flush. The checkpointed recovery point may then be
            above the log end, where a start reads no epochs: so epochs are written before their records.
        last_flush_ms: the time of the last flush, for flush.ms; the caller sets it.
    """

    def __init__(
        self, partition_dir: PartitionDir, segments: SegmentList, epochs: EpochCache, loaded: LoadedLog
    ) -> None:
        self._dir = partition_dir
        self._segments = segments
        self._epochs = epochs
        self.recovery_point = loaded.recovery_point
        self.epochs_are_written = loaded.epochs_are_written
        self.was_truncated = loaded.was_truncated
        self.last_flush_ms = 0
        self._was_truncated_before_flush = False
        self._epochs_failed = False  # the current flush found no space for them
        self._aborted_left_out = False  # or for the index of aborted transactions
        self._unsynced_snapshots = list(loaded.unsynced_snapshots)

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a closed segment, or an index of the last closed one, is not durable yet."""
        segments = self._segments
        closed = segments[-2:-1]
        return self.recovery_point < segments.bases[-1] or any(segment.has_unsynced_indexes for segment in closed)

    def is_due(self, log_end_offset: int, now_ms: int, config: LogConfig) -> bool:
        """Whether a segment was closed, or flush.ms has passed, since the last flush."""
        is_old = now_ms - self.last_flush_ms >= config.flush_ms
        return self.has_unsynced_segments or (is_old and log_end_offset > self.recovery_point)

    # -- changes of the log -------------------------------------------------------------------------------------

    def epoch_began(self) -> None:
        """Record a change of the leader epochs; if the log was truncated, they are durable on return, if there is
        space."""
        self.epochs_are_written = False
        if self.was_truncated:
            self.write_epochs()

    def write_epochs(self) -> None:
        """Write the checkpoint of leader epochs; it is unchanged if there is no space. Raises StorageError."""
        self.epochs_are_written = False
        path = self._dir.path / LEADER_EPOCHS
        try:
            write_lines(self._dir.files.disk, path, self._epochs.lines())
            self.epochs_are_written = True
        except OSError as error:
            if not is_disk_full(error):
                raise self._dir.failed(error) from error

    def truncated(self, end_offset: int) -> None:
        """Record that the log was truncated to `end_offset`."""
        self.was_truncated = True
        self.recovery_point = min(self.recovery_point, end_offset)

    def snapshot_producers(self, producers: ProducerState, offset: int, *, in_next_flush: bool = True) -> None:
        """Write the producers' state at `offset` beside the segment that begins there. Raises OSError."""
        path = segment_path(self._dir.path, offset, ".snapshot")
        disk = self._dir.files.disk
        disk.remove(path)
        file = disk.open(path, create=True)
        try:
            file.write_at(0, [producers.snapshot()])
        except OSError:
            disk.remove(path)  # an incomplete snapshot is invalid
            raise
        finally:
            file.close()
        if in_next_flush:
            self._unsynced_snapshots.append(path)

    def moved(self) -> None:
        """The directory was renamed."""
        self._unsynced_snapshots = [self._dir.path / path.name for path in self._unsynced_snapshots]

    # -- flushing -----------------------------------------------------------------------------------------------

    def begin(self, end_offset: int) -> Callable[[], None]:
        """Prepare a flush up to the present log end; returns blocking work, after which the caller calls `finish`.

        All state is read here, on the loop: later changes belong to the next flush.

        Raises:
            StorageError: as the work does; the directory must go offline, and must not be flushed again.
        """
        partition_dir = self._dir
        if partition_dir.is_detached:
            return lambda: None
        dirty = self._dirty_segments(end_offset)
        paths, self._unsynced_snapshots = self._unsynced_snapshots, []
        try:
            held = self._write_indexes(dirty)
            paths += _unsynced_transaction_indexes(dirty)
        except OSError as error:
            raise partition_dir.failed(error) from error
        directories = self._changed_directories(dirty, has_new_files=bool(paths))
        if partition_dir.is_new:
            paths.append(partition_dir.path / PARTITION_METADATA)
            partition_dir.is_new = False
        # A closed segment's batches are not read again to rebuild its indexes.
        paths += [path for segment in dirty if segment.indexes.is_sealed for path in segment.paths()[1:]]
        epochs = None if self.epochs_are_written else self._epochs.lines()
        epochs_path = partition_dir.path / LEADER_EPOCHS
        self.epochs_are_written = True
        self._was_truncated_before_flush, self.was_truncated = self.was_truncated, False

        def job(disk: Disk) -> None:
            # The log may be deleted during the flush, and may have thousands of files.
            make_durable(disk, held, paths, directories, lambda: partition_dir.is_detached)
            if epochs is not None and not partition_dir.is_detached:
                self._epochs_failed = not write_lines_if_space(disk, epochs_path, epochs)

        return partition_dir.work(job, by_name=bool(paths or directories or epochs is not None))

    def _dirty_segments(self, end_offset: int) -> list[Segment]:
        segments, recovery_point = self._segments, self.recovery_point
        return [
            segment
            for segment in segments.summary.pop_undurable(recovery_point)
            if segment.batches.has_unsynced_truncation
            or segment.has_unsynced_indexes
            or segment.indexes.transactions.is_unsynced  # after a truncation the log may end at the recovery point
            or segments.end_of(segment, end_offset) > recovery_point
        ]

    def _write_indexes(self, dirty: list[Segment]) -> list[SharedFile]:
        """Write index entries to the page cache; returns the open files of the segments."""
        for segment in dirty:
            ignore_disk_full(segment.indexes.flush)
            segment.batches.has_unsynced_truncation = segment.has_unsynced_indexes = False
        held = [segment.open_shared() for segment in dirty]
        self._aborted_left_out = not all(segment.indexes.transactions.is_written for segment in dirty)
        return held

    def _changed_directories(self, dirty: list[Segment], *, has_new_files: bool) -> list[Path]:
        """The directories with names that are not durable yet."""
        path = self._dir.path
        if self._dir.is_new:
            return [path, path.parent]
        is_changed = has_new_files or any(segment.base_offset >= self.recovery_point for segment in dirty)
        return [path] if is_changed else []

    def finish(self, flushed_offset: int, log_end_offset: int) -> None:
        """Advance the recovery point after the work of `begin`, unless there was no space for the leader epochs or for
        aborted transactions, which a start reads only behind it.

        Args:
            flushed_offset: the log end offset at `begin`.
            log_end_offset: the present one; the log may have been truncated.
        Raises:
            StorageError: the disk failed.
        """
        if self._dir.is_detached:
            return
        if self.was_truncated:
            self.write_epochs()  # the flush wrote those from before the truncation
        if self._epochs_failed:
            self._epochs_failed = self.epochs_are_written = False
            self.was_truncated |= self._was_truncated_before_flush
            return
        if self._aborted_left_out:
            return
        self.recovery_point = max(self.recovery_point, min(flushed_offset, log_end_offset))
        assert self.recovery_point <= log_end_offset, "the recovery point is inside the log"

    def undo(self) -> None:
        """Undo `begin` after its work could not open a file: the next flush repeats all of it."""
        self.epochs_are_written = False
        self.was_truncated |= self._was_truncated_before_flush
        self._segments.summary.mark_undurable()
        for segment in self._segments:
            segment.batches.has_unsynced_truncation = True
            segment.indexes.transactions.mark_unsynced()
        # Without descriptors they are not found; snapshots that a loss of power removes are written again.
        with contextlib.suppress(OSError):
            offsets = snapshot_offsets(self._dir.files.disk, self._dir.path)
            self._unsynced_snapshots = [segment_path(self._dir.path, offset, ".snapshot") for offset in offsets]
        self._dir.is_new = True


def _unsynced_transaction_indexes(segments: list[Segment]) -> list[Path]:
    indexes = [segment.indexes.transactions for segment in segments]
    return [index.path for index in indexes if index.is_written and index.pop_unsynced()]
