"""How far each log was cleaned, in Kafka's `cleaner-offset-checkpoint` of each log directory.

An offset that is too small costs a cleaning. One that is too large does harm: keys behind it would not be read, and a
tombstone among them would go before the values that it covers. So before a log may grow again behind a cut, or begin
anew under its name, the file forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import StorageError
from odradek.common.ports import Disk, is_disk_full
from odradek.log.checkpoints import CLEANED, CorruptCheckpointError, TopicPartition, read_offsets, write_offsets

if TYPE_CHECKING:
    from odradek.log.log import Log


class CleanedOffsets:
    """The files of all log directories, and what was last written to each."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._written: dict[Path, dict[TopicPartition, int]] = {}
        self._wanted: dict[Path, dict[TopicPartition, int]] = {}
        self._writing: dict[Path, object] = {}

    def load(self, log_dir: Path, notes: list[str]) -> None:
        """Read a directory's file; one that is damaged means that its logs are cleaned again. Raises OSError."""
        try:
            self._written[log_dir] = read_offsets(self._disk, log_dir / CLEANED)
        except CorruptCheckpointError as error:
            notes.append(f"{error}; its logs are compacted from their start")
            self._written[log_dir] = {}

    def restore(self, log: Log) -> None:
        """Tell a log that was loaded how far it was cleaned."""
        offset = self._written.get(log.log_dir, {}).get(log.topic_partition, 0)
        log.cleaned_offset = offset if offset <= log.log_end_offset else 0

    def work(self, log_dir: Path, logs: Iterable[Log]) -> Callable[[], None] | None:
        """Blocking work that writes a directory's file; None where nothing has changed. The work raises StorageError.

        Args:
            logs: all of the broker.
        """
        offsets = {log.topic_partition: log.cleaned_offset for log in logs if log.log_dir == log_dir}
        offsets = {key: offset for key, offset in offsets.items() if offset > 0}
        self._wanted[log_dir] = offsets
        if offsets == self._written.get(log_dir, {}):
            return None
        return lambda: self._write(log_dir)

    def _write(self, log_dir: Path) -> None:
        token = object()
        if self._writing.setdefault(log_dir, token) is not token:
            return  # another thread is at it, and looks again when it is done
        try:
            while (wanted := self._wanted[log_dir]) != self._written.get(log_dir, {}):
                write_offsets(self._disk, log_dir / CLEANED, wanted)
                self._written[log_dir] = wanted
        except OSError as error:
            if not is_disk_full(error):
                raise StorageError(log_dir, f"{log_dir / CLEANED}: {error}") from error
        finally:
            del self._writing[log_dir]

    def forget(self, key: TopicPartition, log_dir: Path, logs: Iterable[Log]) -> None:
        """Let the file not name a log that is gone, or that was cut, beyond where it is now; blocks where it does.

        Raises:
            StorageError: the disk failed, or is full: a log that is not safe must not be written.
        """
        if key not in self._written.get(log_dir, {}):
            return
        write = self.work(log_dir, logs)
        if write is not None:
            write()
            if log_dir not in self._writing and self._written[log_dir] != self._wanted[log_dir]:
                raise StorageError(log_dir, f"no space to write {log_dir / CLEANED}")
