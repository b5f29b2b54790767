"""The cleaned offset of each log, in Kafka's `cleaner-offset-checkpoint` of each log directory.

An offset that is too large does harm: keys behind it would not be read, and a tombstone could be removed before the
values that it deletes. So the offset is lowered before a truncated or recreated log grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import StorageError
from odradek.common.ports import Disk
from odradek.common.topic_names import TopicPartition
from odradek.log.checkpoints import CLEANED
from odradek.log.files import no_space
from odradek.log.offset_files import OffsetFiles

if TYPE_CHECKING:
    from odradek.log.log import Log


class CleanedOffsets:
    """The files of all log directories; logs that were never cleaned have no entry."""

    def __init__(self, disk: Disk) -> None:
        self._files = OffsetFiles(disk, CLEANED, lambda log: log.cleaned_offset)

    def load(self, log_dir: Path, notes: list[str]) -> None:
        """Read the file of a directory; a damaged one means that its logs are cleaned from their start. Raises
        OSError."""
        self._files.load(log_dir, notes, "its logs are compacted from their start")

    def restore(self, log: Log) -> None:
        """Set the cleaned offset of a loaded log, at most to its end."""
        offset = self._files.written(log.log_dir).get(log.topic_partition, 0)
        log.cleaned_offset = min(offset, log.log_end_offset)

    def work(self, log_dir: Path, logs: Iterable[Log]) -> Callable[[], None] | None:
        """Return blocking work that writes a directory's file; None if nothing has changed. The work raises
        StorageError.

        Args:
            logs: all logs of the broker.
        """
        cleaned = [log for log in logs if log.cleaned_offset > 0]
        return self._files.work(log_dir, cleaned)

    def required(self, log_dir: Path, logs: Iterable[Log]) -> Callable[[], None]:
        """As `work`, but the work raises ApiError if there is no space."""
        write = self._files.work(log_dir, [log for log in logs if log.cleaned_offset > 0], wait=True)

        def work() -> None:
            if write is not None:
                write()
            if self._files.has_unwritten(log_dir):
                raise no_space(log_dir)

        return work

    def remove(self, key: TopicPartition, log_dir: Path, logs: Iterable[Log]) -> None:
        """Lower or remove the offset of a truncated or deleted log; blocks if it has one.

        Raises:
            StorageError: the disk failed, or is full: the log must not be written.
        """
        if not self._files.max_recorded_offset(key, log_dir):
            return
        self._files.write_now(log_dir, [log for log in logs if log.cleaned_offset > 0])
        if self._files.has_unwritten(log_dir):
            raise StorageError(log_dir, f"no space to write {log_dir / CLEANED}")
