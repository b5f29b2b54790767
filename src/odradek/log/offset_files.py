"""The offset checkpoints of each log directory.

A checkpointed offset that is too small costs work at the next start. One that is too large skips the verification of
records after a truncation. So before a truncated or recreated log grows, its checkpointed offset must be lowered, even
while another thread is writing the file.
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
    """One checkpoint, with a file in every log directory."""

    def __init__(self, disk: Disk, name: str, offset_of: Callable[[Log], int]) -> None:
        """`offset_of` returns the offset that is stored for a log."""
        self._disk = disk
        self._name = name
        self._offset_of = offset_of
        self._written: dict[Path, dict[TopicPartition, int]] = {}
        self._latest: dict[Path, dict[TopicPartition, int]] = {}
        self._writing: dict[Path, Mutex] = defaultdict(disk.mutex)

    def load(self, log_dir: Path, notes: list[str], meaning: str) -> None:
        """Read the file of a directory. A damaged file counts as empty; `meaning` is the consequence for the note.
        Raises OSError."""
        try:
            self._written[log_dir] = read_offsets(self._disk, log_dir / self._name)
        except CorruptCheckpointError as error:
            notes.append(f"{error}; {meaning}")
            self._written[log_dir] = {}

    def written(self, log_dir: Path) -> dict[TopicPartition, int]:
        """The content of a directory's file."""
        return self._written.get(log_dir, {})

    def work(
        self, log_dir: Path, logs: Iterable[Log], *, always: bool = False, wait: bool = False
    ) -> Callable[[], None] | None:
        """Return blocking work that writes a directory's file; None if nothing has changed. The work raises
        StorageError.

        A full disk is no failure: the old file stays valid.

        Args:
            logs: all logs of the broker.
            always: write even without a change, to detect a failed disk that is otherwise unused.
            wait: return once the file is written; otherwise another thread that is writing may write it later.
        """
        offsets = {log.topic_partition: self._offset_of(log) for log in logs if log.log_dir == log_dir}
        self._latest[log_dir] = offsets
        if offsets == self._written.get(log_dir) and not always:
            return None
        writing = self._writing[log_dir]
        return lambda: self._write(log_dir, writing, wait=wait)

    def write_now(self, log_dir: Path, logs: Iterable[Log]) -> None:
        """Write the present offsets, after any other thread that is writing; blocks. Raises StorageError."""
        self.work(log_dir, logs, always=True)
        self._write(log_dir, self._writing[log_dir], wait=True)

    def _write(self, log_dir: Path, writing: Mutex, *, wait: bool) -> None:
        if not writing.acquire(blocking=wait):
            return  # another thread is writing, and compares again when it is done
        try:
            while True:
                latest = self._latest[log_dir]
                write_offsets(self._disk, log_dir / self._name, latest)
                self._written[log_dir] = latest
                if latest == self._latest[log_dir]:
                    return
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(log_dir, f"{log_dir / self._name}: {error}") from error
        finally:
            writing.release()

    def lower(self, log: Log, logs: Iterable[Log]) -> None:
        """Lower the stored offset of a truncated log if it is above the present one; this blocks. Raises
        StorageError."""
        if self.max_recorded_offset(log.topic_partition, log.log_dir) > self._offset_of(log):
            self.write_now(log.log_dir, logs)

    def max_recorded_offset(self, key: TopicPartition, log_dir: Path) -> int:
        """The largest offset of a partition that the file has, or that a thread is writing."""
        return max(said.get(log_dir, {}).get(key, 0) for said in (self._written, self._latest))

    def remove(self, key: TopicPartition, log_dir: Path, logs: Iterable[Log]) -> None:
        """Remove the offset of a partition that is recreated under the same name; blocks if there is one.

        The old offset would hide records of the new log after a crash before the next write.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full. StorageError.
        """
        if not self.max_recorded_offset(key, log_dir):
            return
        self.write_now(log_dir, [log for log in logs if log.topic_partition != key])
        if self.has_unwritten(log_dir):
            raise no_space(log_dir)

    def has_unwritten(self, log_dir: Path) -> bool:
        """Whether the last write failed for lack of space."""
        return self._written.get(log_dir) != self._latest.get(log_dir)
