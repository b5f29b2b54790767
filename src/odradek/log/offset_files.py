"""The checkpoints of offsets in each log directory: what was last written to them, and who writes.

An offset that is too small costs work at the next start. One that is too large does harm: records below it are not
verified, though the log was truncated and has grown since. So before a log may grow behind a cut, or be recreated under
its name, the file must not name it beyond where it is: also where another thread is just writing what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import StorageError
from odradek.common.ports import Disk, Mutex, is_disk_full
from odradek.common.topic_names import TopicPartition
from odradek.log.checkpoints import CorruptCheckpointError, read_offsets, write_offsets
from odradek.log.files import no_space

if TYPE_CHECKING:
    from odradek.log.log import Log


class OffsetFiles:
    """One checkpoint, in every log directory."""

    def __init__(self, disk: Disk, name: str, offset_of: Callable[[Log], int]) -> None:
        """`offset_of` is what the file says of a log."""
        self._disk = disk
        self._name = name
        self._offset_of = offset_of
        self._written: dict[Path, dict[TopicPartition, int]] = {}
        self._wanted: dict[Path, dict[TopicPartition, int]] = {}
        self._writing: dict[Path, Mutex] = defaultdict(disk.mutex)

    def load(self, log_dir: Path, notes: list[str], meaning: str) -> None:
        """Read a directory's file; a damaged one says nothing, which means what `meaning` says. Raises OSError."""
        try:
            self._written[log_dir] = read_offsets(self._disk, log_dir / self._name)
        except CorruptCheckpointError as error:
            notes.append(f"{error}; {meaning}")
            self._written[log_dir] = {}

    def written(self, log_dir: Path) -> dict[TopicPartition, int]:
        """What a directory's file says."""
        return self._written.get(log_dir, {})

    def work(
        self, log_dir: Path, logs: Iterable[Log], *, always: bool = False, wait: bool = False
    ) -> Callable[[], None] | None:
        """Blocking work that writes a directory's file; None where nothing has changed. The work raises StorageError.

        A full disk is no failure: the file that is there stays valid, only older.

        Args:
            logs: all of the broker.
            always: write what has not changed too: a disk that has failed, and is not used otherwise, is found out.
            wait: the work returns when the file says so; else another thread that is at it may have it to do still.
        """
        offsets = {log.topic_partition: self._offset_of(log) for log in logs if log.log_dir == log_dir}
        self._wanted[log_dir] = offsets
        if offsets == self._written.get(log_dir) and not always:
            return None
        writing = self._writing[log_dir]
        return lambda: self._write(log_dir, writing, wait=wait)

    def write_now(self, log_dir: Path, logs: Iterable[Log]) -> None:
        """Let the file say what is so now, whichever other thread writes it; blocks. Raises StorageError."""
        self.work(log_dir, logs, always=True)
        self._write(log_dir, self._writing[log_dir], wait=True)

    def _write(self, log_dir: Path, writing: Mutex, *, wait: bool) -> None:
        if not writing.acquire(blocking=wait):
            return  # another thread is at it, and looks again when it is done
        try:
            while True:
                wanted = self._wanted[log_dir]
                write_offsets(self._disk, log_dir / self._name, wanted)
                self._written[log_dir] = wanted
                if wanted == self._wanted[log_dir]:
                    return
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(log_dir, f"{log_dir / self._name}: {error}") from error
        finally:
            writing.release()

    def lower(self, log: Log, logs: Iterable[Log]) -> None:
        """A log was cut: let the file not name it beyond where it is; blocks where it does. Raises StorageError."""
        if self.max_recorded_offset(log.topic_partition, log.log_dir) > self._offset_of(log):
            self.write_now(log.log_dir, logs)

    def max_recorded_offset(self, key: TopicPartition, log_dir: Path) -> int:
        """The largest offset that a directory's file may have for a partition, or may get from who is writing it."""
        return max(said.get(log_dir, {}).get(key, 0) for said in (self._written, self._wanted))

    def forget(self, key: TopicPartition, log_dir: Path, logs: Iterable[Log]) -> None:
        """A log is recreated under a name: let the file not say of it what it says of the one before.

        Blocks where it does. A start taken from there would hide the new log's records, after a crash that comes before
        the file is written again.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, no space for it. StorageError.
        """
        if not self.max_recorded_offset(key, log_dir):
            return
        self.write_now(log_dir, [log for log in logs if log.topic_partition != key])
        if self.is_behind(log_dir):
            raise no_space(log_dir)

    def is_behind(self, log_dir: Path) -> bool:
        """Whether the last write found no space."""
        return self._written.get(log_dir) != self._wanted.get(log_dir)
