"""Future logs: copies of logs in another log directory of this broker, which replace the logs once they are complete
(KIP-113).

A future log is in `topic-partition.<32 hex digits>-future`. When it has all records of the log, the log's directory is
renamed for deletion, and the future log gets the log's name. Before that the controller is notified of the replica's
new directory, which decides after a crash:

- If both exist, copying continues. If nothing is left to copy and the controller has the replica in the new directory,
  a loss of power has undone the renames, and they are repeated.
- If only the future log exists, and the controller has the replica in its directory, it becomes the log.
- If two logs have the partition's name, the one in the controller's directory is the log. The other is removed, unless
  it is longer; a directory that holds a needed name gets another one (`log.stray`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import StorageError
from odradek.common.topic_names import TopicPartition
from odradek.log.checkpoints import write_topic_id
from odradek.log.loading import AssignedDirectory, FoundLog, LogLoader
from odradek.log.log_dir import LogDir
from odradek.log.opening import use_files
from odradek.log.placing import CountedLogs
from odradek.log.stray import rename_stray

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.log.manager import LogManager


class FutureLogs:
    """The future logs of one broker, at most one for each partition."""

    def __init__(self, manager: LogManager, new_name: Callable[[str, int], str]) -> None:
        """`new_name` draws the name of a directory."""
        self._manager = manager
        self._new_name = new_name
        self.logs = CountedLogs(manager.placing)
        self.topic_ids: dict[TopicPartition, UUID | None] = {}
        # The directory for a replica that this broker does not have yet.
        self.preferred: dict[TopicPartition, Path] = {}

    def get(self, key: TopicPartition) -> Log | None:
        return self.logs.get(key)

    def create(self, current: Log, topic_id: UUID, log_dir: Path) -> Log:
        """Create an empty future log in `log_dir`, with the log start offset of the log.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION; KAFKA_STORAGE_ERROR, the disk is full and nothing was created.
                StorageError.
        """
        key, disk = current.topic_partition, self._manager.disk
        directory = log_dir / self._new_name(*key)
        self._manager.remove_offsets(key, log_dir)
        try:
            disk.make_dirs(directory)
            write_topic_id(disk, directory, topic_id)
            as_begun = LogDir(log_dir, clean_shutdown=True, checkpointed_start={key: current.log_start_offset})
            found = FoundLog(as_begun, directory, key, current.config, self._manager.random_jitter())
            log = found.open(
                disk, self._manager.files, self._manager.clock.now_ms(), self._manager.removal.remove_later
            )
        except (OSError, StorageError) as error:
            self._manager.creation_failed(directory, error)
        log.partition_dir.is_new = True
        self.logs[key], self.topic_ids[key] = log, topic_id
        return log

    def remove(self, key: TopicPartition) -> Log | None:
        """Remove a future log from the maps after its directory failed; its files stay for the next start."""
        self.topic_ids.pop(key, None)
        return self.logs.pop(key, None)

    def delete(self, key: TopicPartition) -> bool:
        """Delete a future log; returns whether there was one. Raises StorageError."""
        log = self.remove(key)
        if log is None:
            return False
        self._manager.removal.discard(log)
        return True

    def replace(self, key: TopicPartition) -> Log:
        """Replace the log by its future log; the caller discards the old log, whose directory may fail alone.

        The future log is complete, and durable except for its last batches; the caller has checked it in the same
        iteration of the loop. `LogRemoval.discard` with `after_names_in` makes the names durable before the old files
        are removed: until then a crash finds both.

        Raises:
            StorageError: the future log could not be renamed; the log is unchanged.
        """
        current, future = self._manager.logs.get(key), self.logs[key]
        self._rename(future)
        if current is not None:
            inherit_state_from(future, current)
        self._swap_in(future)
        return future

    def _rename(self, future: Log) -> None:
        """Rename the future log's directory to the log's name. Raises StorageError."""
        manager, (topic, number) = self._manager, future.topic_partition
        manager.remove_cleaned_offset((topic, number), future.log_dir)
        directory = future.log_dir / f"{topic}-{number}"
        try:
            rename_stray(manager.disk, directory, manager.random_bits())
            rename_to(future, directory)
        except OSError as error:
            raise StorageError(future.log_dir, f"{directory}: {error}") from error

    def _swap_in(self, future: Log) -> None:
        topic_id = self.topic_ids[future.topic_partition]
        self.remove(future.topic_partition)
        self._manager.swap_in(future, topic_id)

    def register_loaded(self, loader: LogLoader) -> None:
        """Register the future logs that were found at start; replace logs by those that are complete. A directory that
        fails meanwhile goes offline, and is one of the loader's failures."""
        for each in loader.futures:
            if each.log is None or each.log_dir.error:
                continue
            try:
                self._register_loaded(each, each.log, loader.assigned)
            except StorageError as error:
                loader.failures[error.log_dir] = str(error)
                self._manager.take_offline(error.log_dir, str(error))

    def _register_loaded(self, found: FoundLog, log: Log, assigned: AssignedDirectory) -> None:
        """Raises StorageError: of the future log's directory, where the log stays; or of the replaced log's, which
        could not be discarded."""
        manager, key = self._manager, found.topic_partition
        current = manager.logs.get(key)
        if key in self.logs or (current is not None and log.log_dir == current.log_dir):
            manager.removal.discard(log)  # a cancelled move
            return
        use_files(log, manager.files)
        self.logs[key], self.topic_ids[key] = log, found.topic_id
        if assigned(*key) != found.log_dir.directory_id:
            return
        if current is None or (manager.topic_ids[key] == found.topic_id and is_continued_by(current, log)):
            directory = log.directory
            self._rename(log)
            manager.notes.append(f"{directory}: the future log was complete, and replaces the log")
            self._swap_in(log)
            if current is not None:
                manager.removal.discard(current, after_names_in=log.log_dir)


def copy_leader_epochs(future: Log, source: Log) -> None:
    """Copy the leader epochs of the source: compaction may have removed all batches at the start of an epoch."""
    entries = [entry for entry in source.epochs.entries() if entry[1] <= future.log_end_offset]
    if entries != future.epochs.entries():
        future.epochs.replace(entries)
        future.flush_state.epochs_are_written = False


def rename_to(log: Log, directory: Path) -> None:
    """Rename the directory of a log; the next flush makes the name durable. No flush or other work may be running.

    Raises:
        OSError: the directory has its old name.
    """
    log.partition_dir.rename(directory)
    log.segments.moved()
    log.flush_state.moved()


def inherit_state_from(log: Log, other: Log) -> None:
    """Copy the offsets, producers and listeners of the log that this one replaces. Both have the same batches."""
    assert log.log_end_offset == other.log_end_offset, "the replacement has all records"
    log.log_start_offset = max(log.log_start_offset, other.log_start_offset)
    log.update_high_watermark(other.high_watermark)
    copy_leader_epochs(log, other)
    log.producers = other.producers
    log.damage.on_damage = other.damage.on_damage
    log.config = other.config
    log.flush_state.last_flush_ms = other.flush_state.last_flush_ms


def is_continued_by(log: Log, other: Log) -> bool:
    """Whether another log has all records of this one, and possibly more."""
    if other.log_end_offset < log.log_end_offset:
        return False
    if log.log_end_offset == log.log_start_offset:
        return True
    epoch, end = other.end_offset_for_epoch(log.epochs.latest_epoch)
    return epoch == log.epochs.latest_epoch and end >= log.log_end_offset
