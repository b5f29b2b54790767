"""The open files of a broker: the cache bounds their number, and no file is closed while it is read.

A log directory may have thousands of files, of which few are in use. Segments get their file from the cache each time;
the least recently used ones are closed. A `FileSlice` keeps its file open, even after the segment was deleted: the
descriptor is closed with its last reference.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Disk, File, is_out_of_descriptors
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader

MAX_OPEN_FILES = 256
# The indexes of a full segment take some megabytes: only so many stay in memory.
MAX_LOADED_INDEXES = 64


def raw_batches(file: File, position: int, end_position: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch, with any offsets."""
    while position + HEADER_BYTES <= end_position:
        header = BatchHeader.read(file.read_at(position, HEADER_BYTES), 0)
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or position + header.size_bytes > end_position:
            return
        yield position, header
        position += header.size_bytes


def no_space(log_dir: Path) -> ApiError:
    """The error while a disk is full or no descriptor is free; clients retry."""
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"No space left on the device of {log_dir}, or no descriptor")


class SharedFile:
    """An open file that is closed with its last reference."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()


class FileSlice:
    """A range of a file, for sendfile or to be read.

    Attributes:
        position, length: in bytes.
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
        """The bytes. Raises OSError."""
        return self.shared.file.read_at(self.position, self.length)

    def __len__(self) -> int:
        return self.length


class FileCache:
    """The open files of one broker, in the order of their last use."""

    def __init__(self, disk: Disk, *, capacity: int = MAX_OPEN_FILES) -> None:
        self.disk = disk
        self.capacity = capacity
        # Called on the loop with the directory whose disk is full.
        self.on_no_space: Callable[[Path], None] = lambda log_dir: None
        self._open: OrderedDict[Path, SharedFile] = OrderedDict()
        self._indexes: OrderedDict[Path, Callable[[], None]] = OrderedDict()

    def get(self, path: Path, *, create: bool = False) -> SharedFile:
        """The open file at `path`. Raises OSError; FileNotFoundError if there is none."""
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
        """Report a full disk or missing descriptors; returns the error for the client."""
        if not is_out_of_descriptors(cause):
            self.on_no_space(log_dir)
        return no_space(log_dir)

    def invalidate(self, path: Path) -> None:
        """Remove a file from the cache that is renamed or removed; open references stay valid."""
        self._open.pop(path, None)
        self._indexes.pop(path, None)

    def cache_indexes(self, path: Path, unload: Callable[[], None]) -> None:
        """Record that the indexes of a closed segment were loaded, and unload the oldest if there are too many.

        Raises:
            OSError: new entries of an index could not be written.
        """
        self._indexes[path] = unload
        self._indexes.move_to_end(path)
        if len(self._indexes) > MAX_LOADED_INDEXES:
            self._indexes.popitem(last=False)[1]()

    def invalidate_below(self, directory: Path) -> None:
        """Remove all files of a directory and of those in it from the cache."""
        below = f"{directory}/"  # `Path.parents` of every open file for each deleted log would take seconds
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
    """Sync open files, then files by name if they exist, then directories. Blocks, raises OSError.

    `is_over` is called before each file; True ends the work.
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
            continue  # retention has removed it
        try:
            file.sync()
        finally:
            file.close()
    for directory in directories:
        disk.sync_dir(directory)


def remove_now(disk: Disk, paths: list[Path], delay_ms: int) -> None:
    """Remove files at once; the delay is ignored."""
    for path in paths:
        disk.remove(path)


def rename_deleted(disk: Disk, paths: Sequence[Path]) -> list[Path]:
    """Rename files to end in `.deleted`; returns the new names. Blocks, may run off the loop, raises OSError."""
    renamed = []
    for path in paths:
        target = path.with_name(path.name + ".deleted")
        try:
            disk.rename(path, target)
        except FileNotFoundError:
            continue  # few segments have all four, and the whole directory may have gone meanwhile
        renamed.append(target)
    return renamed
