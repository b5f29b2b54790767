"""All logs of one broker: loading, creation, deletion, flush, checkpoints and retention.

Log directories are independent: each has its lock and its checkpoints, and may fail alone. A directory whose disk fails
goes offline with its logs, and the other directories stay online. Slow work is done in `begin`/`finish` pairs or
returned as blocking functions, which the caller runs off the event loop; this module starts no task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import Clock, Disk, is_disk_full, make_dirs_durably, read_file
from odradek.common.topic_names import TopicPartition
from odradek.log.checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT, replace_topic_id, write_topic_id
from odradek.log.compaction.offsets import CleanedOffsets
from odradek.log.config import LogConfig
from odradek.log.dir_names import future_name
from odradek.log.files import MAX_OPEN_FILES, FileCache
from odradek.log.future import FutureLogs
from odradek.log.loading import FILES_PER_THREAD, AssignedDirectory, FoundLog, LogLoader
from odradek.log.log import Log
from odradek.log.log_dir import NO_DIRECTORY, LogDir
from odradek.log.log_removal import LogRemoval
from odradek.log.offset_files import OffsetFiles
from odradek.log.opening import close_log, use_files
from odradek.log.placing import CountedLogs, Placing
from odradek.log.retention import begin_delete, deletable, finish_delete
from odradek.log.space import DirectorySpace
from odradek.log.stray import free_name

if TYPE_CHECKING:
    from random import Random

LOCK = ".lock"
CLOSING_THREADS = 6
MANY_LOGS = 100


class LogManager:
    """The logs of all partitions on this broker, except the metadata log."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log_dirs: Sequence[Path],
        config: LogConfig,
        random: Random,
        open_files: int = MAX_OPEN_FILES,
    ) -> None:
        """
        Args:
            config: the settings of topics without overrides.
            random: draws segment jitter and the names of deleted directories.
            open_files: the most files of logs that stay open.
        """
        self.disk = disk
        self.clock = clock
        self.base_config = config
        self._random = random
        self.files = FileCache(disk, capacity=open_files)
        self.dirs = {path: LogDir(path) for path in log_dirs}
        self.space = DirectorySpace(disk, self.dirs)
        self.files.on_no_space = self.space.on_disk_full
        self.placing = Placing()
        self.logs = CountedLogs(self.placing)
        self.topic_ids: dict[TopicPartition, UUID | None] = {}
        self.notes: list[str] = []
        self.unopened: frozenset[TopicPartition] = frozenset()  # partitions in directories that failed at start
        self.futures = FutureLogs(self, lambda topic, number: future_name(topic, number, self.random_bits()))
        self._cleaned = CleanedOffsets(disk)
        self._recovery = OffsetFiles(disk, RECOVERY_POINT, lambda log: log.recovery_point)
        self._starts = OffsetFiles(disk, LOG_START, lambda log: log.log_start_offset)
        self._checkpoints = (
            self._recovery,
            self._starts,
            OffsetFiles(disk, HIGH_WATERMARK, lambda log: log.high_watermark),
        )
        self.removal = LogRemoval(disk, clock, self.random_bits)
        self._deleted: dict[TopicPartition, Log] = {}  # deleted logs whose directories are not renamed yet
        self._closed: dict[Path, None] = {}
        self._failed_to_close: dict[Path, StorageError] = {}

    # -- starting -----------------------------------------------------------------------------------------------

    def lock_dirs(self) -> None:
        """Lock every directory for this process; creates missing ones.

        Raises:
            StorageError: a directory cannot be created, or another process uses it.
        """
        for log_dir in self.dirs.values():
            try:
                make_dirs_durably(self.disk, log_dir.path)
                log_dir.release_lock = self.disk.lock(log_dir.path / LOCK)
            except BlockingIOError:
                holder = self._lock_holder(log_dir.path / LOCK)
                raise StorageError(
                    log_dir.path, f"{holder} uses this log directory; stop it, or give this node its own"
                ) from None
            except OSError as error:
                raise StorageError(log_dir.path, f"the log directory cannot be used: {error.strerror}") from None

    def _lock_holder(self, path: Path) -> str:
        try:
            holder = read_file(self.disk, path).decode().strip()
        except (OSError, UnicodeDecodeError):
            holder = ""
        # Apache Kafka leaves its lock file empty.
        return f"process {holder}" if holder.isdecimal() else "another process"

    def begin_load(
        self,
        overrides: Callable[[str], Mapping[str, str]] = lambda topic: {},
        assigned: AssignedDirectory = lambda topic, partition_id: None,
    ) -> LogLoader:
        """Find the logs in the directories. Blocks: run it off the loop before the node serves requests. The caller
        opens all logs with the loader's `open_some`, and then calls `finish_load`.

        Args:
            overrides: returns a topic's own settings.
            assigned: returns the directory that the controller has for a replica of this broker.
        """
        loader = LogLoader(
            self.disk,
            self.base_config,
            overrides,
            assigned,
            now_ms=self.clock.now_ms(),
            jitter=self._random.random,
            remove_later=self.removal.remove_later,
        )
        for log_dir in self.dirs.values():
            try:
                self._cleaned.load(log_dir.path, self.notes)
                for files in self._checkpoints:
                    files.load(log_dir.path, self.notes, "its offsets are taken from the logs")
                log_dir.open(self.disk, *(files.written(log_dir.path) for files in self._checkpoints))
                loader.list_dir(log_dir, self.notes)
            except OSError as error:
                loader.failures[log_dir.path] = str(error)
        return loader

    def finish_load(self, loader: LogLoader) -> int:
        """Register the opened logs, on the loop.

        Returns:
            The number of logs. `notes` has a line for each repair, the loader's `failures` each directory that failed.
        Raises:
            StorageError: all directories are offline.
        """
        for path, reason in loader.failures.items():
            self.take_offline(path, reason)
        loader.release_names(self.random_bits)
        self.removal.remove_later(loader.to_remove, delay_ms=0)
        for found in loader.found.values():
            self.notes += found.notes
            if found.log is not None and not found.log_dir.error:
                use_files(found.log, self.files)
                self._add(found.log, found.topic_id)
        self.futures.register_loaded(loader)
        self.unopened = frozenset(key for key, found in loader.found.items() if found.log_dir.error)
        if all(log_dir.error for log_dir in self.dirs.values()):
            raise StorageError(
                next(iter(self.dirs)), "all log directories are offline: " + next(iter(self.dirs.values())).error
            )
        return len(self.logs)

    def load(
        self,
        overrides: Callable[[str], Mapping[str, str]] = lambda topic: {},
        assigned: AssignedDirectory = lambda topic, partition_id: None,
    ) -> int:
        """Run `begin_load`, `open_some` and `finish_load`. Blocks. For tools and tests."""
        loader = self.begin_load(overrides, assigned)
        for path in self.dirs:
            while loader.open_some(path, self.files):
                pass
        return self.finish_load(loader)

    def read_clean_epochs(self) -> None:
        """Read the broker epochs of the last clean stop, before `load` removes the markers."""
        for log_dir in self.dirs.values():
            log_dir.read_clean_epoch(self.disk)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean stop, if all directories have the same one; else -1 (KIP-966)."""
        epochs = {log_dir.clean_broker_epoch for log_dir in self.dirs.values()}
        return min(epochs) if len(epochs) == 1 else -1

    def _add(self, log: Log, topic_id: UUID | None) -> None:
        key = log.topic_partition
        self._cleaned.restore(log)
        log.on_cleaned_range_truncated = lambda: self._cleaned.remove(key, log.log_dir, self.logs.values())
        log.on_truncated = lambda: self._on_truncated(log)
        self.logs[key] = log
        self.topic_ids[key] = topic_id

    def _on_truncated(self, log: Log) -> None:
        """Lower the checkpointed offsets of a truncated log: the next start must verify its new records, as in
        Kafka."""
        for files in (self._recovery, self._starts):
            files.lower(log, self._each_log())

    # -- logs ---------------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def directory_of(self, topic: str, partition_id: int) -> UUID:
        """The id of the log directory of a partition; NO_DIRECTORY if there is no log."""
        log = self.logs.get((topic, partition_id))
        return NO_DIRECTORY if log is None else self.dirs[log.log_dir].directory_id

    def topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        """The topic id in the log's partition.metadata."""
        return self.topic_ids.get(topic_partition)

    @property
    def directories(self) -> list[LogDir]:
        """Every log directory, online or offline, in the order of log.dirs."""
        return list(self.dirs.values())

    def logs_in(self, log_dir: LogDir) -> list[tuple[TopicPartition, Log]]:
        """The logs of one directory."""
        return [(key, log) for key, log in self.logs.items() if log.log_dir == log_dir.path]

    @property
    def log_count(self) -> int:
        """The number of logs, including deleted ones whose directories still exist."""
        return len(self.logs) + len(self._deleted)

    def _all_logs(self) -> list[Log]:
        return [*self.logs.values(), *self.futures.logs.values()]

    def _each_log(self) -> Iterator[Log]:
        """All logs, without a copy of the list: a request that creates thousands of logs iterates once for each."""
        return chain(self.logs.values(), self.futures.logs.values())

    def online_dirs(self) -> list[Path]:
        return [path for path, log_dir in self.dirs.items() if not log_dir.error]

    def create(
        self,
        topic: str,
        partition_id: int,
        topic_id: UUID,
        overrides: Mapping[str, str],
        *,
        log_dir: Path | None = None,
    ) -> Log:
        """Return the log of a partition: the loaded one, or a new one, which the first flush makes durable.

        A loaded log with another topic id, of a deleted topic, is deleted. A new log is in `log_dir`, else in the
        directory with the fewest logs.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full and nothing was created, or the directory is a symbolic
                link.
            StorageError: the directory cannot be written, or all directories are offline.
        """
        loaded = self.logs.get((topic, partition_id))
        if loaded is not None:
            if self.topic_ids[topic, partition_id] in (topic_id, None):
                return self._apply_topic(loaded, topic_id, overrides)
            self.delete((topic, partition_id))
        earlier = self._deleted.pop((topic, partition_id), None)
        if earlier is not None:
            self.removal.discard(earlier)
        preferred = self.futures.preferred.pop((topic, partition_id), None)
        chosen = log_dir or (preferred if preferred in self.online_dirs() else None) or self._emptiest_dir()
        directory = chosen / f"{topic}-{partition_id}"
        if self.disk.is_taken(directory):
            if self.disk.is_link(directory):
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is a symbolic link")
            free_name(self.files, directory, self.random_bits())
        self.remove_cleaned_offset((topic, partition_id), chosen)
        self.remove_offsets((topic, partition_id), chosen)
        config = LogConfig.from_overrides(self.base_config, overrides)
        try:
            self.disk.make_dirs(directory)
            write_topic_id(self.disk, directory, topic_id)
            found = FoundLog(
                LogDir(chosen, clean_shutdown=True), directory, (topic, partition_id), config, self._random.random()
            )
            log = found.begin(self.disk, self.files, self.clock.now_ms(), self.removal.remove_later)
        except (OSError, StorageError) as error:
            self.creation_failed(directory, error)
        log.partition_dir.is_new = True
        self._add(log, topic_id)
        return log

    def creation_failed(self, directory: Path, error: OSError | StorageError) -> NoReturn:
        """Remove what was created on a full disk. Raises ApiError: KAFKA_STORAGE_ERROR, it is full; StorageError."""
        log_dir, cause = directory.parent, error.__cause__ if isinstance(error, StorageError) else error
        try:
            if isinstance(cause, OSError) and is_disk_full(cause):
                self.disk.remove_tree(directory)
                raise self.files.no_space(log_dir, cause) from None
            raise error
        except OSError as failure:
            raise StorageError(log_dir, f"{directory}: {failure}") from failure

    def _apply_topic(self, log: Log, topic_id: UUID, overrides: Mapping[str, str]) -> Log:
        """Apply the topic's settings to a loaded log, and its id if partition.metadata was damaged."""
        log.config = LogConfig.from_overrides(self.base_config, overrides)
        if self.topic_ids[log.topic_partition] is None:
            try:
                replace_topic_id(self.disk, log.directory, topic_id)
            except OSError as error:
                if not is_disk_full(error):
                    raise StorageError(log.log_dir, f"{log.directory}: {error}") from error
            self.topic_ids[log.topic_partition] = topic_id
        return log

    def _emptiest_dir(self) -> Path:
        online = self.online_dirs()
        if not online:
            raise StorageError(next(iter(self.dirs)), "no log directory is online")
        # If all are cordoned, the controller did not know it yet when it placed the replica here.
        online = [path for path in online if not self.dirs[path].cordoned] or online
        online = [path for path in online if not self.dirs[path].full] or online
        return self.placing.emptiest(online)

    def delete(self, topic_partition: TopicPartition) -> bool:
        """Delete a partition's log; returns whether there was one. Raises StorageError."""
        if not self.schedule_delete(topic_partition):
            return False
        self.removal.discard(self._deleted.pop(topic_partition))
        return True

    def schedule_delete(self, topic_partition: TopicPartition) -> bool:
        """Remove a partition's log from the map; `discard_deleted` renames its directory. Returns whether there was
        one.

        Raises:
            StorageError: its future log could not be discarded.
        """
        self.futures.delete(topic_partition)
        log = self.logs.pop(topic_partition, None)
        self.topic_ids.pop(topic_partition, None)
        if log is None:
            return False
        log.detach()
        self._deleted[topic_partition] = log
        return True

    def discard_deleted(self, limit: int) -> bool:
        """Discard up to `limit` deleted logs, since a request may delete thousands; returns whether there are more.
        Raises StorageError."""
        for key in tuple(islice(self._deleted, limit)):
            self.removal.discard(self._deleted.pop(key))
        return bool(self._deleted)

    def swap_in(self, log: Log, topic_id: UUID | None) -> None:
        """Use a future log as its partition's log; compaction begins at its start again."""
        self._add(log, topic_id)
        log.cleaned_offset = 0

    def remove_cleaned_offset(self, key: TopicPartition, log_dir: Path) -> None:
        """Remove the cleaner's offset of a partition that is recreated in a directory. Raises StorageError."""
        self._cleaned.remove(key, log_dir, self.logs.values())

    def remove_offsets(self, key: TopicPartition, log_dir: Path) -> None:
        """Remove the checkpointed offsets of a partition whose empty log begins in a directory. Blocks.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full. StorageError.
        """
        for files in self._checkpoints:
            files.remove(key, log_dir, self._each_log())

    def random_bits(self) -> int:
        """128 bits for the name of a directory."""
        return self._random.getrandbits(128)

    def random_jitter(self) -> float:
        """A new log's share of segment.jitter.ms, 0 to 1."""
        return self._random.random()

    def update_config(self, topic_partition: TopicPartition, config: LogConfig) -> None:
        """Apply a topic's changed settings to its log."""
        log = self.logs.get(topic_partition)
        if log is not None:
            log.config = config

    def take_offline(self, log_dir: Path, reason: str = "a disk operation failed") -> bool:
        """Mark a directory as offline and remove its logs, which must not be used again; returns whether it was
        online."""
        found = self.dirs.get(log_dir)
        if found is None or found.error:
            return False
        found.error = reason
        lost = [key for key, log in self.logs.items() if log.log_dir == log_dir]
        for key in lost:
            self.logs.pop(key).detach()
            self.topic_ids.pop(key, None)
        self._deleted = {key: log for key, log in self._deleted.items() if log.log_dir != log_dir}
        for key in [key for key, log in self.futures.logs.items() if log.log_dir == log_dir]:
            self.futures.remove(key)
        self.files.invalidate_below(log_dir)
        return True

    # -- periodic work, which the owner calls ---------------------------------------------------------------------

    async def retain(self, log: Log, now_ms: int, producer_expiration_ms: int) -> int:
        """Apply retention to one log, and expire its producers; returns how many segments were deleted.

        Indexes are loaded and files renamed off the loop; decisions are made on the loop.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, no space for a new segment. StorageError.
        """
        log.producers.expire(self.clock.monotonic_ms(), producer_expiration_ms)
        while not log.is_detached and (unread := (found := deletable(log, now_ms)).unread) is not None:
            try:
                load = unread.indexes.begin_load(newest_only=True)
                twin = None if load is None else await self.disk.run_blocking(load)
                if twin is not None and not log.is_detached:
                    unread.indexes.install_indexes(twin)
            except OSError as error:
                # The log may have been deleted, or the segment truncated or compacted, in the meantime.
                if not (log.is_detached or unread.batches.is_dropped):
                    raise StorageError(log.log_dir, f"{log.directory}: {error}") from error
        if not log.is_detached and found.segment_count:
            finish_delete(log, await self.disk.run_blocking(begin_delete(log, found.segment_count, now_ms)))
            return found.segment_count
        return 0

    def logs_to_flush(self, now_ms: int) -> list[Log]:
        """The logs with closed segments that are not durable (a start after a crash then verifies only the active one,
        as in Kafka), and those whose flush.ms has passed."""
        return [log for log in self.logs.values() if log.flush_state.is_due(log.log_end_offset, now_ms, log.config)]

    def checkpoint_work(self) -> Callable[[], None]:
        """Return blocking work that writes the checkpoints of every directory; the work raises StorageError. If a disk
        is full, the old checkpoints stay valid."""
        logs = self._all_logs()
        writes = []
        for path in self.online_dirs():
            for work in (
                self._cleaned.work(path, self.logs.values()),
                *(files.work(path, logs, always=True) for files in self._checkpoints),
            ):
                writes += [work] if work is not None else []

        def write_all() -> None:
            for write in writes:
                write()

        return write_all

    def cleaned_work(self, log_dir: Path, *, required: bool = False) -> Callable[[], None]:
        """Return blocking work that stores the cleaner's offsets of a directory; the work raises StorageError. With
        `required`, a full disk raises ApiError; otherwise a later call stores the offsets."""
        if required:
            return self._cleaned.required(log_dir, self.logs.values())
        return self._cleaned.work(log_dir, self.logs.values()) or (lambda: None)

    # -- stopping -----------------------------------------------------------------------------------------------

    def begin_close(self) -> list[Callable[[], None]]:
        """Return functions that make all logs durable, to run in as many threads before `close`.

        If many logs have unflushed records, all dirty pages are written back first: thousands of separate syncs would
        take minutes.
        """
        waiting = deque(log for log in self._all_logs() if log.log_dir in self.online_dirs())
        if sum(log.unflushed_count > 0 for log in waiting) >= MANY_LOGS:
            self.disk.write_back()

        def work() -> None:
            files = FileCache(self.disk, capacity=FILES_PER_THREAD)
            while True:
                try:
                    log = waiting.popleft()
                except IndexError:
                    return
                use_files(log, files)
                try:
                    close_log(log)
                except StorageError as error:
                    self._failed_to_close[error.log_dir] = error
                self._closed[log.directory] = None

        return [work] * CLOSING_THREADS

    def close(self, *, broker_epoch: int = -1) -> None:
        """Make all logs durable, and write the checkpoints and the marker of a clean stop. Blocks.

        Raises:
            StorageError: a directory failed. It gets no marker; the other directories are closed.
        """
        failure: StorageError | None = None
        self._discard_all()
        for path, error in self._failed_to_close.items():
            failure = error
            self.take_offline(path, str(error))
        for path in self.online_dirs():
            open_logs = [log for log in self._all_logs() if log.log_dir == path and log.directory not in self._closed]
            try:
                for log in open_logs:
                    close_log(log)
            except StorageError as error:
                failure = error
                self.take_offline(path, str(error))
        try:
            self.checkpoint_work()()
            for path in self.online_dirs():
                self.dirs[path].mark_clean(self.disk, broker_epoch)
        except StorageError as error:
            failure = error
        finally:
            self.unlock()
        if failure is not None:
            raise failure

    def _discard_all(self) -> None:
        while self._deleted:
            try:
                self.discard_deleted(MANY_LOGS)
            except StorageError as error:
                self._failed_to_close[error.log_dir] = error

    def unlock(self) -> None:
        """Release the locks of the directories."""
        for log_dir in self.dirs.values():
            if log_dir.release_lock is not None:
                log_dir.release_lock()
                log_dir.release_lock = None
