"""One segment: a file of batches from `base_offset` on, with its indexes.

Positions are bytes in the file. Reads do not copy: `locate` finds batches by their headers, and `read` returns a
`FileSlice`. An append is one write; the size, which bounds all reads, grows after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from odradek.common.ports import Buffer
from odradek.log.files import FileCache, FileSlice, SharedFile
from odradek.log.read_verification import ReadVerification
from odradek.log.segment_file import SegmentFile
from odradek.log.segment_indexes import INDEX_INTERVAL_BYTES, SegmentIndexes
from odradek.record.batch import BatchHeader


class DamagedBatchError(Exception):
    """There is no whole batch at this position (in bytes): the file has changed since it was written."""

    def __init__(self, segment: Segment, position: int) -> None:
        super().__init__(f"no whole batch at byte {position} of {segment.path}")
        self.segment = segment
        self.position = position


class Segment:
    """A segment of one log.

    Attributes:
        batches: the `.log` file.
        indexes: offsets, times and aborted transactions.
        verification: the ranges of the file that were verified since the start.
        scan_end: the position at which the last `locate` stopped: of the batch found, of damage, or the end.
        has_unsynced_indexes: the indexes were sealed and not synced since: a loss of power may lose them.
    """

    def __init__(
        self, files: FileCache, directory: Path, base_offset: int, *, created_ms: int, suffix: str = ""
    ) -> None:
        """`suffix` ends the names of the files of a segment that is not yet part of the log."""
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.batches = SegmentFile(files, directory, base_offset, suffix)
        self.indexes = SegmentIndexes(self.batches, suffix)
        self.verification = ReadVerification(self.batches)
        self.scan_end = 0
        self.has_unsynced_indexes = False
        self._first_timestamp_ms: int | None = None
        # (position, header) of the last batch that was appended since the start.
        self._last_batch: tuple[int, BatchHeader] | None = None

    def open(self, *, create: bool = False) -> None:
        """Read the size of the file, which stays closed until its first use; raises OSError."""
        batches = self.batches
        if create:
            batches.size_bytes = batches.files.get(batches.path, create=True).file.size()
        else:
            batches.size_bytes = self.verification.tail_start = batches.disk.size(batches.path)
        self.indexes.is_loaded = create

    @property
    def directory(self) -> Path:
        return self.batches.directory

    @property
    def path(self) -> Path:
        return self.batches.path

    @property
    def size_bytes(self) -> int:
        return self.batches.size_bytes

    def paths(self) -> list[Path]:
        """The paths of the segment's files, the `.log` file first."""
        return [self.batches.path, *self.indexes.paths()]

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, chunks: Sequence[Buffer]) -> int:
        """Append batches that have their offsets, with one write; returns the position of the first.

        The caller advances the log end offset, and then calls `index_batch` for each: after a failure of an index the
        log must not assign the same offset twice (KAFKA-7866).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full; nothing was appended, and a later append may fit.
            StorageError: the write failed in another way; the directory must go offline.
        """
        batches = self.batches
        position = batches.size_bytes
        try:
            written = batches.files.get(batches.path).file.write_at(position, chunks)
        except OSError as error:
            batches.undo_write(position, error)
        batches.size_bytes = position + written
        return position

    def index_batch(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Add a batch that was written to the indexes; its header has its offset."""
        self.indexes.add(header, position, index_interval_bytes)
        self._last_batch = (position, header)

    def first_timestamp_ms(self) -> int | None:
        """The first batch's timestamp, from which segment.ms counts the age; None where the segment is empty."""
        if self._first_timestamp_ms is None:
            for _, header in self.headers(0):
                self._first_timestamp_ms = header.max_timestamp
                break
        return self._first_timestamp_ms

    def truncated(self) -> None:
        """Invalidate the positions of batches after `segment_truncation` has truncated the file or restored its end."""
        self._last_batch = None
        if not self.size_bytes:
            self._first_timestamp_ms = None

    def seal(self) -> None:
        """Finish the indexes: the segment gets no more batches."""
        self.has_unsynced_indexes = True
        self.indexes.seal()

    def sync(self) -> None:
        """Block until the batches are durable; raises OSError, after which they are not."""
        self.open_shared().file.sync()

    def sync_file_and_directory(self) -> None:
        """Block until the bytes, and all names in the directory, are durable; raises OSError."""
        self.sync()
        self.batches.disk.sync_dir(self.directory)

    # -- reading ------------------------------------------------------------------------------------------------

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each whole batch from a batch boundary on."""
        return self.batches.headers(position)

    def open_shared(self) -> SharedFile:
        """The open file, usable as long as the caller holds it, even after the segment's removal; raises OSError."""
        return self.batches.open_shared()

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        return self.open_shared().file.read_at(position, header.size_bytes)

    def last_batch_with(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the last batch, if it was appended since the start and holds `offset`.

        Most readers are at the end: for them the file is not read, as `locate` does, which also detects damage.
        """
        if self._last_batch is None:
            return None
        position, header = self._last_batch
        is_at_end = position + header.size_bytes == self.batches.size_bytes
        return self._last_batch if is_at_end and header.base_offset <= offset <= header.last_offset else None

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that holds `offset` or a later one; None where there is none.

        Recovery verifies no index below the recovery point: a damaged one is detected and rebuilt here.
        """
        if self._last_batch is not None and offset >= self._last_batch[1].base_offset:
            start = self._last_batch[0]
        else:
            self.indexes.load()
            start = self.indexes.offsets.position_for(offset)
        self.scan_end = start
        is_entry_right, is_whole = start == 0, False
        for position, header in self.batches.headers(start):
            is_whole = True
            if not is_entry_right and not self.base_offset <= header.base_offset <= offset:
                break  # an index entry must point to a batch at or before the offset
            is_entry_right = True
            if header.last_offset >= offset:
                return position, header
            self.scan_end = position + header.size_bytes
        if is_entry_right or (not is_whole and self._ends_at(start)):
            return None
        self.indexes.rebuild(INDEX_INTERVAL_BYTES)
        self.scan_end = 0
        for position, header in self.batches.headers(0):
            if header.last_offset >= offset:
                return position, header
            self.scan_end = position + header.size_bytes
        return None

    def _ends_at(self, boundary: int) -> bool:
        """Whether a batch ends at this index entry: then the entry is right, and the batch behind it is damaged."""
        position = self.indexes.offsets.boundary_before(boundary - 1)
        for at, header in self.batches.headers(position):
            position = at + header.size_bytes
            if position >= boundary:
                break
        return position == boundary

    def position_of(self, offset: int) -> int:
        """The position of the first batch that holds `offset` or a later one; the end of the batches if none does."""
        self.locate(offset)
        return self.scan_end

    def read(
        self,
        position: int,
        first: BatchHeader,
        *,
        max_bytes: int,
        end_position: int,
        offset: int,
        end_offset: int,
        at_least_one: bool,
    ) -> FileSlice | None:
        """The bytes from a batch on, up to `max_bytes` and `end_position`; ends at an index entry where there is one.

        Args:
            offset: the reader's offset, which is in the first batch or before it.
            end_offset: the offset (exclusive) at which the segment ends.
        Raises:
            DamagedBatchError: the first batch is damaged. The slice ends before a later one that is.
        """
        available = end_position - position
        length = min(available, max_bytes)
        if length < first.size_bytes:
            if not at_least_one or available < first.size_bytes:
                return None
            length = first.size_bytes
        elif length < available:
            # Clients drop an incomplete last batch: a slice that ends at an index entry sends no byte twice.
            self.indexes.load()
            boundary = self.indexes.offsets.boundary_before(position + length)
            if boundary >= position + first.size_bytes:
                length = boundary - position
        if position < self.verification.tail_start and not self.verification.covers(position, length):
            length = self.verification.verify(position, first, length, offset, end_offset)
            if not length:
                raise DamagedBatchError(self, position)
        return FileSlice(self.batches.files.get(self.batches.path), position, length)

    # -- its files ----------------------------------------------------------------------------------------------

    def use_files(self, files: FileCache) -> None:
        """Open files through another cache from now on."""
        self.batches.files = files
        self.indexes.files_changed()

    def moved_to(self, directory: Path) -> None:
        """Use the directory's new name; open files that are held stay valid."""
        self.batches.moved_to(directory)
        self.indexes.files_changed()
