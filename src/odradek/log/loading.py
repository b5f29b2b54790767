"""Loads all logs of a broker at start, with several threads.

First every directory is listed and its checkpoints are read. Then threads open its logs, and recover them after an
unclean stop, in steps from one shared list. Finally the event loop takes over the opened logs. The threads share
nothing but the list: each has its own file cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import StorageError
from odradek.common.ports import Disk
from odradek.common.topic_names import METADATA_TOPIC, TopicPartition
from odradek.log.checkpoints import CorruptCheckpointError, read_topic_id
from odradek.log.config import LogConfig
from odradek.log.dir_names import DELETED_DIR, FUTURE_DIR, PARTITION_DIR, deleted_path
from odradek.log.failback_file import is_unfinished
from odradek.log.files import FileCache
from odradek.log.log import Log, RemoveLater
from odradek.log.opening import open_log
from odradek.log.recovery import begin_directory
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.log.log_dir import LogDir

# Returns the id of the directory that the controller has for this broker's replica; None if it has none.
AssignedDirectory = Callable[[str, int], UUID | None]
FILES_PER_THREAD = 8
# Passing work to a thread takes about as long as opening one empty log.
LOGS_PER_STEP = 8


@config
class RecoveryConfig:
    """Settings of loading logs at start."""

    threads_per_dir: int = option(
        "num.recovery.threads.per.data.dir",
        default=2,
        unit="count",
        doc="Threads that load, and after a crash recover, the logs of one directory.",
    )


@dataclass(slots=True)
class FoundLog:
    """A partition's directory, and the log that was opened from it."""

    log_dir: LogDir
    directory: Path
    topic_partition: TopicPartition
    config: LogConfig
    jitter: float
    notes: list[str] = field(default_factory=list)
    log: Log | None = None
    topic_id: UUID | None = None

    def begin(self, disk: Disk, files: FileCache, now_ms: int, remove_later: RemoveLater) -> Log:
        """Create the log of an empty directory. Blocks, raises OSError."""
        loaded = begin_directory(files, self.directory, now_ms=now_ms)
        key = self.topic_partition
        self.log = Log(files, self.directory, key, self.config, loaded, jitter=self.jitter, remove_later=remove_later)
        return self.log

    def open(self, disk: Disk, files: FileCache, now_ms: int, remove_later: RemoveLater) -> Log:
        """Load the log, and recover it after an unclean stop. Blocks, raises StorageError."""
        log_dir, key = self.log_dir, self.topic_partition
        try:
            self.topic_id = read_topic_id(disk, self.directory)
        except CorruptCheckpointError as error:
            self.notes.append(f"{error}; the id is taken from the metadata log")
        except OSError as error:
            raise StorageError(log_dir.path, f"{self.directory}: {error}") from error
        self.log = open_log(
            files,
            self.directory,
            key,
            self.config,
            now_ms=now_ms,
            clean_shutdown=log_dir.clean_shutdown,
            recovery_point=log_dir.checkpointed_recovery.get(key, 0),
            log_start_offset=log_dir.checkpointed_start.get(key, 0),
            jitter=self.jitter,
            remove_later=remove_later,
            notes=self.notes,
        )
        self.log.update_high_watermark(log_dir.checkpointed_watermark.get(key, 0))
        # The process may have crashed between the creation of the directory and the first flush.
        self.log.partition_dir.is_new = not log_dir.clean_shutdown
        return self.log


class LogLoader:
    """The logs of one start. `total` is their number, `opened` the number that is loaded."""

    def __init__(
        self,
        disk: Disk,
        base_config: LogConfig,
        overrides: Callable[[str], Mapping[str, str]],
        assigned: AssignedDirectory,
        *,
        now_ms: int,
        jitter: Callable[[], float],
        remove_later: RemoveLater,
    ) -> None:
        """
        Args:
            overrides: returns a topic's own settings.
            assigned: returns the directory that the controller has for a replica; it decides between two logs of a
                partition.
            jitter: draws each log's share of segment.jitter.ms.
        """
        self._disk = disk
        self._base_config = base_config
        self._overrides = overrides
        self.assigned = assigned
        self._now_ms = now_ms
        self._jitter = jitter
        self._remove_later = remove_later
        self._waiting: dict[Path, deque[FoundLog]] = {}
        self.found: dict[TopicPartition, FoundLog] = {}
        self.futures: list[FoundLog] = []
        self.to_remove: list[Path] = []
        self._copies: list[tuple[Path, Path]] = []  # (copy to remove, directory of the remaining log)
        self.failures: dict[Path, str] = {}
        self.opened = 0

    @property
    def total(self) -> int:
        return len(self.found) + len(self.futures)

    def list_dir(self, log_dir: LogDir, notes: list[str]) -> None:
        """Find the logs of a directory. Blocks, raises OSError."""
        waiting: deque[FoundLog] = deque()
        for name in self._names(log_dir.path):
            directory = log_dir.path / name
            future = FUTURE_DIR.fullmatch(name)
            match = PARTITION_DIR.fullmatch(name) or future
            is_deleted = DELETED_DIR.fullmatch(name) is not None
            if not (match or is_deleted) or not self._disk.is_dir(directory):
                continue
            if self._disk.is_link(directory):
                notes.append(f"{directory}: a symbolic link; it is ignored")
                continue
            if is_deleted:
                self.to_remove.append(directory)
                continue
            assert match is not None
            if match["topic"] == METADATA_TOPIC:
                continue
            key = (match["topic"], int(match["partition"]))
            if match["partition"] != str(key[1]):
                notes.append(f"{directory}: ignored, the directory of that partition is {key[0]}-{key[1]}")
                continue
            config = LogConfig.from_overrides(self._base_config, self._overrides(match["topic"]))
            found = FoundLog(log_dir, directory, key, config, self._jitter())
            if future is not None:
                self.futures.append(found)
            elif key not in self.found:
                self.found[key] = found
            elif not self._is_better(found, self.found[key], notes):
                continue
            waiting.append(found)
        self._waiting[log_dir.path] = waiting

    def _names(self, log_dir: Path) -> Iterator[str]:
        """The names in a directory; removes incomplete failback files."""
        for name in self._disk.list_dir(log_dir):
            if is_unfinished(name):
                self._disk.remove(log_dir / name)
            else:
                yield name

    def _is_better(self, second: FoundLog, first: FoundLog, notes: list[str]) -> bool:
        """Decide between two logs of one partition: the first found is the log, unless the controller has the replica
        in the directory of the second: then a move to it was interrupted (`log.future`)."""
        if self.assigned(*second.topic_partition) != second.log_dir.directory_id:
            self._resolve_copy(second, first, notes)
            return False
        self._waiting[first.log_dir.path].remove(first)
        self.found[second.topic_partition] = second
        self._resolve_copy(first, second, notes)
        return True

    def _resolve_copy(self, copy: FoundLog, kept: FoundLog, notes: list[str]) -> None:
        was_moved = self.assigned(*kept.topic_partition) == kept.log_dir.directory_id
        if was_moved and self._log_bytes(copy.directory) <= self._log_bytes(kept.directory):
            notes.append(f"{copy.directory}: it was moved to {kept.log_dir.path}; this copy is removed")
            self._copies.append((copy.directory, kept.log_dir.path))
        else:
            notes.append(f"{copy.directory}: also in {kept.log_dir.path}; this copy is ignored")

    def release_names(self, random_bits: Callable[[], int]) -> None:
        """Rename the copies that will be removed, before a log gets their name: otherwise its files would be removed
        with them.

        The name of the log that remains is made durable first. A copy that cannot be renamed stays until the next
        start.
        """
        for directory, kept_in in self._copies:
            if kept_in in self.failures or directory.parent in self.failures:
                continue
            target = deleted_path(directory, random_bits())
            try:
                self._disk.sync_dir(kept_in)
                self._disk.rename(directory, target)
            except OSError:
                continue
            self.to_remove.append(target)

    def _log_bytes(self, directory: Path) -> int:
        names = [name for name in self._disk.list_dir(directory) if name.endswith(".log")]
        return sum(self._disk.size(directory / name) for name in names)

    def open_some(self, log_dir: Path, files: FileCache) -> bool:
        """Open the next few logs of a directory. Blocks; several threads may call it, each with its own `files`.

        Returns:
            Whether there may be more; False after a failure of the directory.
        """
        waiting = self._waiting.get(log_dir, deque())
        for _ in range(LOGS_PER_STEP):
            try:
                found = waiting.popleft()
            except IndexError:
                return False
            try:
                found.open(self._disk, files, self._now_ms, self._remove_later)
            except StorageError as error:
                self.failures[log_dir] = str(error)
                waiting.clear()
                return False
            self.opened += 1
        return True
