"""Open files, shared and counted: few are open at a time, and none is closed under a reader.

A log of a thousand partitions has thousands of files, of which few are in use. Segments ask the cache for their file
each time; the least recently used ones are let go. Whoever still holds a `FileSlice` keeps its file open, even when the
segment was deleted meanwhile: the descriptor is closed when the last reference goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from odradek.common.ports import Disk, File

MAX_OPEN_FILES = 256


class SharedFile:
    """An open file that closes itself when nobody holds it any more."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()


class FileSlice:
    """A run of bytes in a file, still on disk; good for sendfile, or to be read.

    Attributes:
        position, length: bytes.
    """

    __slots__ = ("length", "position", "shared")

    def __init__(self, shared: SharedFile, position: int, length: int) -> None:
        self.shared = shared
        self.position = position
        self.length = length

    @property
    def file(self) -> File:
        return self.shared.file

    def read(self) -> bytes:
        """The bytes; raises OSError when the disk does."""
        return self.shared.file.read_at(self.position, self.length)

    def __len__(self) -> int:
        return self.length


class FileCache:
    """The open files of one broker, least recently used first."""

    def __init__(self, disk: Disk, *, capacity: int = MAX_OPEN_FILES) -> None:
        self.disk = disk
        self._capacity = capacity
        self._open: OrderedDict[Path, SharedFile] = OrderedDict()

    def get(self, path: Path, *, create: bool = False) -> SharedFile:
        """The open file at `path`; raises OSError, FileNotFoundError among them."""
        shared = self._open.get(path)
        if shared is not None:
            self._open.move_to_end(path)
            return shared
        shared = SharedFile(self.disk.open(path, create=create))
        self._open[path] = shared
        if len(self._open) > self._capacity:
            self._open.popitem(last=False)
        return shared

    def forget(self, path: Path) -> None:
        """The file gets another name or goes: holders keep it, others open it anew."""
        self._open.pop(path, None)

    def forget_below(self, directory: Path) -> None:
        below = f"{directory}/"  # as text: `Path.parents` of every open file, for each deleted log, took seconds
        for path in [path for path in self._open if str(path).startswith(below)]:
            del self._open[path]


def make_durable(disk: Disk, held: Sequence[SharedFile], paths: Sequence[Path], directories: Sequence[Path]) -> None:
    """Sync open files, files by name where they are, and last the names in directories; blocks, raises OSError."""
    for shared in held:
        shared.file.sync()
    for path in paths:
        if disk.exists(path):
            file = disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
    for directory in directories:
        disk.sync_dir(directory)
