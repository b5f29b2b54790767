"""Directories of deleted and moved logs, and single files: renamed at once, removed after file.delete.delay.ms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import StorageError
from odradek.common.ports import Clock, Disk, is_disk_full
from odradek.log.dir_names import deleted_path
from odradek.log.opening import close_log

if TYPE_CHECKING:
    from odradek.log.log import Log


class LogRemoval:
    """The files and directories to remove from the log directories of one broker.

    A rename is durable before the files are removed, not when `discard` returns: a sync for each of a thousand
    partitions would block other requests. If a crash undoes the rename, the directory belongs to no topic, and the next
    start removes it.

    Args:
        random_bits: returns 128 random bits, for a name.
    """

    def __init__(self, disk: Disk, clock: Clock, random_bits: Callable[[], int]) -> None:
        self._disk = disk
        self._clock = clock
        self._random_bits = random_bits
        self._pending: list[tuple[int, Path]] = []
        self._renamed_in: dict[Path, None] = {}  # log directories with renames that are not durable yet

    def remove_later(self, paths: Iterable[Path], delay_ms: int) -> None:
        due = self._clock.monotonic_ms() + delay_ms
        self._pending += [(due, path) for path in paths]

    def discard(self, log: Log, *, after_names_in: Path | None = None) -> None:
        """Rename the directory of a deleted or replaced log, which is removed later.

        Args:
            after_names_in: the names in this directory are made durable before the files are removed.
        Raises:
            StorageError: the directory was neither renamed nor removed.
        """
        log.detach()
        try:
            close_log(log, clean=False)
            target = self._rename(log)
        except OSError as error:
            raise StorageError(log.log_dir, f"{log.directory}: {error}") from error
        if target is None:
            self._remove_now(log, after_names_in)
            return
        self._renamed_in[log.log_dir] = None
        if after_names_in is not None:
            self._renamed_in[after_names_in] = None
        self.remove_later([target], log.config.file_delete_delay_ms)

    def _rename(self, log: Log) -> Path | None:
        """Returns the new path, or None if the longer name does not fit into a full directory. Raises OSError."""
        topic, partition_id = log.topic_partition
        target = deleted_path(log.log_dir / f"{topic}-{partition_id}", self._random_bits())
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return None
        return target

    def _remove_now(self, log: Log, after_names_in: Path | None) -> None:
        failing = after_names_in or log.log_dir
        try:
            if after_names_in is not None:
                self._disk.sync_dir(after_names_in)
            failing = log.log_dir
            self._disk.remove_tree(log.directory)
        except OSError as error:
            raise StorageError(failing, f"{log.directory}: {error}") from error

    def begin_removals(self) -> Callable[[], None]:
        """Return blocking work that removes the files and directories that are due; it never raises OSError."""
        now_ms = self._clock.monotonic_ms()
        due = [path for when, path in self._pending if when <= now_ms]
        self._pending = [(when, path) for when, path in self._pending if when > now_ms]
        disk = self._disk
        renamed_in = tuple(self._renamed_in) if due else ()
        if due:
            self._renamed_in.clear()

        def work() -> None:
            try:
                for log_dir in renamed_in:
                    # Otherwise a crash may leave a log with its old name and only a part of its files.
                    disk.sync_dir(log_dir)
            except OSError:
                return
            for path in due:
                try:
                    disk.remove_tree(path) if disk.is_dir(path) else disk.remove(path)
                except OSError:
                    # The next start finds it again.
                    continue

        return work
