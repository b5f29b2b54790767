"""What of a log is durable, and how the rest becomes so: its flushes, and the epochs that must be durable with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from odradek.common.errors import StorageError
from odradek.common.ports import Disk, is_disk_full, unless_full
from odradek.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    TopicPartition,
    write_lines,
    write_lines_if_space,
)
from odradek.log.epoch_cache import EpochCache
from odradek.log.files import FileCache, make_durable
from odradek.log.producer_state import ProducerState
from odradek.log.reading import ReadableLog
from odradek.log.recovery import LoadedLog, snapshot_offsets
from odradek.log.segment import segment_path

T = TypeVar("T")


class DurableLog(ReadableLog):
    """A log and its recovery point: all below (exclusive) is durable."""

    def __init__(self, files: FileCache, directory: Path, topic_partition: TopicPartition, loaded: LoadedLog) -> None:
        super().__init__(files, directory, topic_partition, loaded)
        self.producers: ProducerState = loaded.producers
        self.recovery_point = loaded.recovery_point
        self._unsynced_snapshots = list(loaded.unsynced_snapshots)
        self._epochs_are_written = loaded.epochs_are_written
        self._epochs_failed = False  # the flush under way found no space for them
        self._aborted_left_out = False  # nor for an entry of the index of aborted transactions
        self._was_cut = loaded.was_cut  # since the last flush
        self._was_cut_before_flush = False
        self.last_flush_ms = 0
        self.is_new = False  # set by the maker of the directory: its name is not durable before the first flush

    @property
    def unflushed_count(self) -> int:
        """Records that a loss of power would take."""
        return self.log_end_offset - self.recovery_point

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a closed segment, or an index of the last one that was closed, is not durable yet."""
        closed = self._segments[-2:-1]
        return self.recovery_point < self._bases[-1] or any(segment.has_unsynced_indexes for segment in closed)

    # -- epochs -------------------------------------------------------------------------------------------------

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was written; -1 where unknown."""
        return self.epochs.epoch_for_offset(offset)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A leader's epoch begins here. Truncation is decided by it: it is durable before the recovery point passes its
        records, which recovery reads epochs from. Where the log was cut, the recovery point of the last checkpoint may
        lie behind its end; then it is durable on return, or, for want of space, before anything is appended."""
        if self.epochs.assign(leader_epoch, start_offset):
            self._epochs_are_written = False
            if self._was_cut:
                self._write_epochs()

    def _write_epochs(self) -> None:
        self._epochs_are_written = False
        try:
            write_lines(self._files.disk, self.directory / LEADER_EPOCHS, self.epochs.lines())
            self._epochs_are_written = True
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(self.log_dir, f"{self.directory / LEADER_EPOCHS}: {error}") from error

    def take_epochs_of(self, other: DurableLog) -> None:
        """Take over where epochs begin in a log whose batches this one has up to its own end: compaction may have left
        no batch of an epoch's first offsets."""
        entries = [entry for entry in other.epochs.entries() if entry[1] <= self.log_end_offset]
        if entries != self.epochs.entries():
            self.epochs = EpochCache.of(entries)
            self._epochs_are_written = False

    # -- working off the loop -----------------------------------------------------------------------------------

    def leave(self) -> None:
        """The directory is no partition's any more, and may be renamed or removed under work that is under way."""
        self.has_left = True

    def work(self, job: Callable[[Disk], T], *, by_name: bool = True) -> Callable[[], T | None]:
        """Blocking work on the log for another thread; `by_name` says that it uses names in the directory.

        The job gets a disk on which the directory keeps its name, so that it never touches another log's that has the
        name by then. What cannot be done because the log has left its directory is no fault of the disk: then the work
        returns None.

        Raises:
            StorageError: the disk failed; so does the work.
        """
        directory = self.directory
        try:
            disk = self._files.disk.hold(directory) if by_name else self._files.disk
        except OSError as error:
            raise StorageError(self.log_dir, f"{directory}: {error}") from error

        def work() -> T | None:
            try:
                return job(disk)
            except (OSError, StorageError) as error:
                if self.has_left:
                    return None
                if isinstance(error, StorageError):
                    raise
                raise StorageError(directory.parent, f"{directory}: {error}") from error

        return work

    # -- flushing -----------------------------------------------------------------------------------------------

    def begin_flush(self) -> tuple[int, Callable[[], None]]:
        """What must be done to make the log durable up to its end as it is now.

        Returns:
            (end offset, blocking work to run off the loop); then call `finish_flush(end offset)`. The work raises
            StorageError, after which the directory is lost and must not be tried again.
        """
        end, directory = self.log_end_offset, self.directory
        if self.has_left:
            return end, lambda: None
        dirty = [
            segment
            for segment in self._summary.take_undurable(self.recovery_point)
            if segment.has_unsynced_cut or segment.has_unsynced_indexes or self.end_of(segment) > self.recovery_point
        ]
        snapshots, self._unsynced_snapshots = self._unsynced_snapshots, []
        try:
            for segment in dirty:
                unless_full(segment.flush_indexes)
                segment.has_unsynced_cut = segment.has_unsynced_indexes = False
            held = [self._files.get(segment.path) for segment in dirty]
            self._aborted_left_out = not all(segment.transactions.is_written for segment in dirty)
            snapshots += [
                segment.transactions.path
                for segment in dirty
                if segment.transactions.is_written and segment.transactions.take_unsynced()
            ]
        except OSError as error:
            raise StorageError(self.log_dir, f"{directory}: {error}") from error
        names_changed = bool(snapshots) or any(segment.base_offset >= self.recovery_point for segment in dirty)
        directories = [directory, directory.parent] if self.is_new else [directory] if names_changed else []
        snapshots += [directory / PARTITION_METADATA] if self.is_new else []
        # A closed segment's batches are not read again to rebuild its indexes.
        snapshots += [path for segment in dirty if segment.is_sealed for path in segment.paths()[1:]]
        self.is_new = False
        epochs = None if self._epochs_are_written else self.epochs.lines()
        self._epochs_are_written = True
        self._was_cut_before_flush, self._was_cut = self._was_cut, False

        def job(disk: Disk) -> None:
            make_durable(disk, held, snapshots, directories)
            if epochs is not None:
                self._epochs_failed = not write_lines_if_space(disk, directory / LEADER_EPOCHS, epochs)

        return end, self.work(job, by_name=bool(snapshots or directories or epochs is not None))

    def finish_flush(self, end_offset: int) -> None:
        """The work of `begin_flush` is done: all below is durable, unless there was no space to say under which epochs,
        or which transactions were aborted: a start looks for either behind the recovery point alone.

        Raises:
            StorageError: the disk failed.
        """
        if self.has_left:
            return
        if self._was_cut:
            self._write_epochs()  # what was written meanwhile is older than the cut
        if self._epochs_failed:
            self._epochs_failed = self._epochs_are_written = False
            self._was_cut |= self._was_cut_before_flush
            return
        if self._aborted_left_out:
            return
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))

    def flush_undone(self) -> None:
        """A flush was begun and did not come to its end, as no file could be opened: all that it could have made
        durable is made so by the next one."""
        self._epochs_are_written = False
        self._was_cut |= self._was_cut_before_flush
        self._summary.distrust()
        for segment in self._segments:
            segment.has_unsynced_cut = True
        # Without descriptors they may not be found: one that a loss of power takes is made again.
        with contextlib.suppress(OSError):
            offsets = snapshot_offsets(self._files.disk, self.directory)
            self._unsynced_snapshots = [segment_path(self.directory, offset, ".snapshot") for offset in offsets]
        self.is_new = True

    def flush(self) -> None:
        """Make all durable; blocks. For starts, stops and tools."""
        end, work = self.begin_flush()
        work()
        self.finish_flush(end)

    def _take_snapshot(self) -> None:
        path = segment_path(self.directory, self.log_end_offset, ".snapshot")
        disk = self._files.disk
        disk.remove(path)
        file = disk.open(path, create=True)
        try:
            file.write_at(0, [self.producers.snapshot()])
        except OSError:
            disk.remove(path)
            raise
        finally:
            file.close()
        self._unsynced_snapshots.append(path)

    # -- moving -------------------------------------------------------------------------------------------------

    def rename_to(self, directory: Path) -> None:
        """Give the directory another name beside the one it has, which the next flush makes durable.

        No flush and no other work on the log may be under way.

        Raises:
            OSError: it has the name it had.
        """
        self._files.disk.rename(self.directory, directory)
        self._files.forget_below(self.directory)
        self.directory, self.log_dir = directory, directory.parent
        for segment in self._segments:
            segment.moved_to(directory)
        self._unsynced_snapshots = [directory / path.name for path in self._unsynced_snapshots]
        self.is_new = True
