"""Open files, shared and counted: few are open at a time, and none is closed under a reader.

A log of a thousand partitions has thousands of files, of which few are in use. Segments ask the cache for their file
each time; the least recently used ones are let go. A holder of a `FileSlice` keeps its file open, even when the
segment was deleted meanwhile: the descriptor is closed when the last reference goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Disk, File, is_out_of_descriptors
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader

MAX_OPEN_FILES = 256
# An index of a full segment takes some megabytes; a log of a hundred segments must not keep them all.
MAX_LOADED_INDEXES = 64


def raw_batches(file: File, position: int, end_position: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch, whatever offsets they bear."""
    while position + HEADER_BYTES <= end_position:
        header = BatchHeader.read(file.read_at(position, HEADER_BYTES), 0)
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or position + header.size_bytes > end_position:
            return
        yield position, header
        position += header.size_bytes


def no_space(log_dir: Path) -> ApiError:
    """The answer while a disk is full, or no file can be opened: clients try again."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"No space left on the device of {log_dir}, or no descriptor")


class SharedFile:
    """An open file that closes itself when its last holder releases it."""

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
        self.capacity = capacity
        # Called on the loop with the directory in which something did not fit.
        self.on_no_space: Callable[[Path], None] = lambda log_dir: None
        self._open: OrderedDict[Path, SharedFile] = OrderedDict()
        self._indexes: OrderedDict[Path, Callable[[], None]] = OrderedDict()

    def get(self, path: Path, *, create: bool = False) -> SharedFile:
        """The open file at `path`; raises OSError, FileNotFoundError among them."""
        shared = self._open.get(path)
        if shared is not None:
            self._open.move_to_end(path)
            return shared
        try:
            file = self.disk.open(path, create=create)
        except OSError as error:
            if not is_out_of_descriptors(error) or not self._open:
                raise
            self._open.clear()
            file = self.disk.open(path, create=create)
        shared = SharedFile(file)
        self._open[path] = shared
        if len(self._open) > self.capacity:
            self._open.popitem(last=False)
        return shared

    def no_space(self, log_dir: Path, cause: OSError) -> ApiError:
        """Something did not fit, or no file could be opened, and this is the answer."""
        if not is_out_of_descriptors(cause):
            self.on_no_space(log_dir)
        return no_space(log_dir)

    def forget(self, path: Path) -> None:
        """The file gets another name or goes: holders keep it, others open it again."""
        self._open.pop(path, None)
        self._indexes.pop(path, None)

    def cache_indexes(self, path: Path, let_go: Callable[[], None]) -> None:
        """The indexes of a closed segment were loaded; those loaded longest ago are let go where there are too many.

        Raises:
            OSError: entries that were not in their file yet could not be written.
        """
        self._indexes[path] = let_go
        self._indexes.move_to_end(path)
        if len(self._indexes) > MAX_LOADED_INDEXES:
            self._indexes.popitem(last=False)[1]()

    def forget_below(self, directory: Path) -> None:
        below = f"{directory}/"  # as text: `Path.parents` of every open file, for each deleted log, took seconds
        for table in (self._open, self._indexes):
            for path in [path for path in table if str(path).startswith(below)]:
                del table[path]


def make_durable(
    disk: Disk,
    held: Sequence[SharedFile],
    paths: Sequence[Path],
    directories: Sequence[Path],
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Sync open files, files by name where they are, and last the names in directories; blocks, raises OSError.

    `is_over` is asked before each file: whether nothing of it matters any more.
    """
    for shared in held:
        if is_over():
            return
        shared.file.sync()
    for path in paths:
        if is_over():
            return
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue  # retention has removed it meanwhile
        try:
            file.sync()
        finally:
            file.close()
    for directory in directories:
        disk.sync_dir(directory)


def remove_now(disk: Disk, paths: list[Path], delay_ms: int) -> None:
    """Remove files at once, whatever the delay."""
    for path in paths:
        disk.remove(path)


def rename_deleted(disk: Disk, paths: Sequence[Path]) -> list[Path]:
    """Give files the suffix `.deleted`; returns the new names. Blocks, may run off the loop, raises OSError."""
    renamed = []
    for path in paths:
        target = path.with_name(path.name + ".deleted")
        try:
            disk.rename(path, target)
        except FileNotFoundError:
            continue  # few segments have all four, and the whole directory may have gone meanwhile
        renamed.append(target)
    return renamed
