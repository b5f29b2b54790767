"""Future logs: copies of logs in another log directory of this broker, on their way to take the logs' places (KIP-113).

A future log is in `topic-partition.<32 hex digits>-future`. When it has all that the log has, it gets the log's name,
and the log a name that no log has. A crash may come between any two steps; then the directory that the controller was
knows of decides, which is notified before anything is renamed:

- a future log is there, and so is the log: the copy goes on, unless nothing is left to copy and the controller knows
  that directory as the replica's: then the renames had been done, and a loss of power took them back
- a future log is there alone, where the controller has the replica: it is the log
- two logs bear the name: the one where the controller has the replica is the log, and the other goes, unless it is
  longer: nothing that somebody may miss is removed; where a copy is to get the name that it bears, it gets another one
  (`log.stray`)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import is_disk_full
from odradek.common.topic_names import TopicPartition
from odradek.log.checkpoints import write_topic_id
from odradek.log.loading import AssignedDirectory, FoundLog
from odradek.log.log_dir import LogDir
from odradek.log.opening import use_files
from odradek.log.placing import CountedLogs
from odradek.log.stray import rename_stray

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.log.manager import LogManager

MAX_NAME_BYTES = 255


def future_name(topic: str, partition_id: int, random_bits: int) -> str:
    """The directory's name. Raises ApiError: INVALID_TOPIC_EXCEPTION, it is longer than a file system takes."""
    name = f"{topic}-{partition_id}.{random_bits:032x}-future"
    if len(name) > MAX_NAME_BYTES:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is too long a name for a copy beside its log")
    return name


class FutureLogs:
    """The future logs of one broker, at most one for a partition."""

    def __init__(self, manager: LogManager, new_name: Callable[[str, int], str]) -> None:
        """`new_name` draws the name of a directory."""
        self._manager = manager
        self._new_name = new_name
        self.logs = CountedLogs(manager.placing)
        self.topic_ids: dict[TopicPartition, UUID | None] = {}
        # Where a replica that is not here yet is wanted, when it comes.
        self.preferred: dict[TopicPartition, Path] = {}

    def get(self, key: TopicPartition) -> Log | None:
        return self.logs.get(key)

    def create(self, current: Log, topic_id: UUID, log_dir: Path) -> Log:
        """An empty future log of a partition, in `log_dir`, which begins where the log does.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR (no space; nothing is left of the try). StorageError.
        """
        key, disk = current.topic_partition, self._manager.disk
        directory = log_dir / self._new_name(*key)
        self._manager.forget_offsets(key, log_dir)
        try:
            disk.make_dirs(directory)
            write_topic_id(disk, directory, topic_id)
            as_begun = LogDir(log_dir, clean_shutdown=True, checkpointed_start={key: current.log_start_offset})
            found = FoundLog(as_begun, directory, key, current.config, self._manager.random_jitter())
            log = found.open(disk, self._manager.files, self._manager.clock.now_ms(), self._manager.remove_later)
        except (OSError, StorageError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and is_disk_full(cause):
                disk.remove_tree(directory)
                raise self._manager.files.no_space(log_dir, cause) from None
            if isinstance(error, StorageError):
                raise
            raise StorageError(log_dir, f"{directory}: {error}") from error
        log.partition_dir.is_new = True
        self.logs[key], self.topic_ids[key] = log, topic_id
        return log

    def forget(self, key: TopicPartition) -> Log | None:
        """A directory failed: the future log is known no more, and stays where it is; the next start looks at it."""
        self.topic_ids.pop(key, None)
        return self.logs.pop(key, None)

    def delete(self, key: TopicPartition) -> bool:
        """The copy is not wanted any more; returns whether there was one. Raises StorageError."""
        log = self.forget(key)
        if log is None:
            return False
        self._manager.discard(log)
        return True

    def replace(self, key: TopicPartition) -> Log:
        """Put the future log into the place of the log, whose directory gets a name that no log has.

        The copy is complete, and durable but for its last batches; the caller runs on the loop since it saw that.
        The names are durable when the old files are removed, not on return: until then a crash finds both.

        Raises:
            StorageError: the copy did not get its name; the log is as it was.
        """
        manager = self._manager
        current, future = manager.logs.get(key), self.logs[key]
        manager.forget_cleaned(key, future.log_dir)
        directory = future.log_dir / f"{key[0]}-{key[1]}"
        try:
            rename_stray(manager.disk, directory, manager.random_bits())
            rename_to(future, directory)
        except OSError as error:
            raise StorageError(future.log_dir, f"{directory}: {error}") from error
        if current is not None:
            inherit_state_from(future, current)
        topic_id = self.topic_ids[key]
        self.forget(key)
        manager.swap_in(future, topic_id)
        if current is not None:
            # Its files go when both names are durable.
            manager.discard(current, after_names_in=future.log_dir)
        return future

    def take_loaded(self, found: list[FoundLog], assigned: AssignedDirectory) -> None:
        """Take over what a start has found; a copy that is the log already gets its place. Raises StorageError."""
        manager = self._manager
        for each in found:
            key, log = each.topic_partition, each.log
            if log is None or each.log_dir.error:
                continue
            if key in self.logs or log.log_dir == getattr(manager.logs.get(key), "log_dir", None):
                manager.discard(log)  # what is left of a copy that was given up
                continue
            use_files(log, manager.files)
            self.logs[key], self.topic_ids[key] = log, each.topic_id
            if assigned(*key) != each.log_dir.directory_id:
                continue
            current = manager.logs.get(key)
            if current is None or (manager.topic_ids[key] == each.topic_id and is_continued_by(current, log)):
                manager.notes.append(f"{log.directory}: the copy was complete, and is the log")
                if current is not None:
                    manager.forget_log(current)
                self.replace(key)
                if current is not None:
                    manager.discard(current, after_names_in=log.log_dir)


def take_epochs_of(future: Log, source: Log) -> None:
    """Take over where epochs begin in a log whose batches this one has up to its own end: compaction may have left
    no batch of an epoch's first offsets."""
    entries = [entry for entry in source.epochs.entries() if entry[1] <= future.log_end_offset]
    if entries != future.epochs.entries():
        future.epochs.take(entries)
        future.flush_state.epochs_are_written = False


def rename_to(log: Log, directory: Path) -> None:
    """Give the directory another name beside the one it has, which the next flush makes durable.

    No flush and no other work on the log may be under way.

    Raises:
        OSError: it has the name it had.
    """
    log.partition_dir.rename(directory)
    log.segments.moved()
    log.flush_state.moved()


def inherit_state_from(log: Log, other: Log) -> None:
    """Take over the marks of a log that has the same batches up to the same end, and what memory alone has of it, such
    as what its producers are about to do."""
    assert log.log_end_offset == other.log_end_offset, "a log is replaced by one that has all of it"
    log.log_start_offset = max(log.log_start_offset, other.log_start_offset)
    log.update_high_watermark(other.high_watermark)
    take_epochs_of(log, other)
    log.producers = other.producers
    log.damage.on_damage = other.damage.on_damage
    log.config = other.config
    log.flush_state.last_flush_ms = other.flush_state.last_flush_ms


def is_continued_by(log: Log, other: Log) -> bool:
    """Whether another log has all that this one has, and perhaps more."""
    if other.log_end_offset < log.log_end_offset:
        return False
    if log.log_end_offset == log.log_start_offset:
        return True
    epoch, end = other.end_offset_for_epoch(log.epochs.latest_epoch)
    return epoch == log.epochs.latest_epoch and end >= log.log_end_offset
