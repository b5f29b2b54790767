"""The `.log` file of a segment: its batch headers are read in order, and slices of it are served to readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from odradek.common.errors import StorageError
from odradek.common.ports import Disk, File, is_disk_full, is_out_of_descriptors
from odradek.log.files import FileCache, SharedFile
from odradek.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader

# Indexes store offsets relative to the base offset in 32 bits.
MAX_RELATIVE_OFFSET = 2**31 - 1
# One read covers an index interval, so that finding a batch is one or two reads.
SCAN_BYTES = 4096 + HEADER_BYTES


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """`<directory>/00000000000000000042.log` and the like."""
    return directory / f"{base_offset:020d}{suffix}"


def read_headers(
    file: File, position: int, end_position: int, segment_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch of a segment's file; reads lazily.

    Ends before bytes that are no batch of this segment. They occur only after damage below the recovery point, where a
    start does not verify.

    Args:
        position, end_position: a batch boundary, and an exclusive end, in bytes.
        segment_offset: the segment's base offset.
    """
    window, start = b"", position
    while position + HEADER_BYTES <= end_position:
        inside = position - start
        if inside < 0 or inside + HEADER_BYTES > len(window):
            window, start, inside = file.read_at(position, SCAN_BYTES), position, 0
            if len(window) < HEADER_BYTES:
                return
        header = BatchHeader.read(window, inside)
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or position + size > end_position or header.magic != MAGIC:
            return
        last_offset = header.base_offset + header.last_offset_delta
        if not segment_offset <= header.base_offset <= last_offset <= segment_offset + MAX_RELATIVE_OFFSET:
            return
        yield position, header
        position += size


class SegmentFile:
    """The `.log` file of one segment.

    Attributes:
        files: the open files of the broker.
        size_bytes: the size of the batches that readers may see; it rises after each write.
        has_unsynced_truncation: bytes of a failed write were truncated, and the truncation is not synced.
        is_dropped: retention has removed the segment; another file may get the name soon.
    """

    __slots__ = ("base_offset", "directory", "files", "has_unsynced_truncation", "is_dropped", "path", "size_bytes")

    def __init__(self, files: FileCache, directory: Path, base_offset: int, suffix: str) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, ".log" + suffix)
        self.size_bytes = 0
        self.has_unsynced_truncation = False
        self.is_dropped = False

    @property
    def disk(self) -> Disk:
        return self.files.disk

    def open_shared(self) -> SharedFile:
        """The open file, usable as long as the caller holds it, even after the segment's removal. Raises OSError."""
        return self.files.get(self.path)

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each whole batch from a batch boundary on."""
        return read_headers(self.files.get(self.path).file, position, self.size_bytes, self.base_offset)

    def undo_write(self, position: int, error: OSError) -> NoReturn:
        """Truncate the bytes of a failed write.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full or no descriptor is free; a later write may succeed.
            StorageError: the disk failed.
        """
        log_dir, files = self.directory.parent, self.files
        if is_out_of_descriptors(error):
            raise files.no_space(log_dir, error) from None  # the file was not opened: nothing was written
        if is_disk_full(error):
            try:
                files.get(self.path).file.truncate(position)
            except OSError as second:
                raise StorageError(log_dir, f"{self.path}: {second}") from error
            # After a loss of power the bytes may be back, also in a closed segment: the next flush syncs the
            # truncation.
            self.has_unsynced_truncation = True
            raise files.no_space(log_dir, error) from None
        raise StorageError(log_dir, f"{self.path}: {error}") from error

    def moved_to(self, directory: Path) -> None:
        """Use the directory's new name; open files stay valid."""
        self.directory = directory
        self.path = directory / self.path.name
