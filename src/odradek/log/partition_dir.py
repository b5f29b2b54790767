"""The directory of one log: its files, and work on them in other threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from odradek.common.errors import StorageError
from odradek.common.ports import Disk
from odradek.log.files import FileCache

T = TypeVar("T")


class PartitionDir:
    """The directory of a log. Its name changes when a future log becomes the log.

    Attributes:
        files: the open files of the broker.
        log_dir: the one of log.dirs that the directory is in.
        is_detached: the directory belongs to no partition any more, or its disk failed.
        is_new: its name is not durable before the next flush; set by the function that creates or renames it.
    """

    __slots__ = ("files", "is_detached", "is_new", "log_dir", "path")

    def __init__(self, files: FileCache, path: Path) -> None:
        self.files = files
        self.path, self.log_dir = path, path.parent
        self.is_detached = False
        self.is_new = False

    def failed(self, error: OSError) -> StorageError:
        """The error of a failed operation, with which the log directory goes offline."""
        return StorageError(self.log_dir, f"{self.path}: {error}")

    def work(
        self, job: Callable[[Disk], T], *, by_name: bool = True, is_dropped: Callable[[], bool] = lambda: False
    ) -> Callable[[], T | None]:
        """Wrap blocking work on the log for another thread.

        The job gets a disk on which the directory keeps its name, so that it never uses another log's directory of the
        same name. If the job fails because the log was detached or its files were removed, the work returns None.

        Args:
            by_name: whether the job opens files by name.
            is_dropped: whether the job's files were removed; called in the other thread.
        Raises:
            StorageError: the disk failed; so does the work.
        """
        path = self.path
        if self.is_detached:
            return lambda: None
        try:
            disk = self.files.disk.hold(path) if by_name else self.files.disk
        except OSError as error:
            raise self.failed(error) from error

        def work() -> T | None:
            try:
                return job(disk)
            except (OSError, StorageError) as error:
                if self.is_detached or is_dropped():
                    return None
                if isinstance(error, StorageError):
                    raise
                raise StorageError(path.parent, f"{path}: {error}") from error

        return work

    def rename(self, path: Path) -> None:
        """Rename the directory; the next flush makes the name durable.

        Raises:
            OSError: the directory has its old name.
        """
        self.files.disk.rename(self.path, path)
        self.files.invalidate_below(self.path)
        self.path, self.log_dir = path, path.parent
        self.is_new = True
