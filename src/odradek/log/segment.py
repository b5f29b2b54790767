"""One segment: a file of batches from `base_offset` on, with its indexes.

Positions are bytes in the file. Reading never copies: `locate` finds batches by their headers, and what is read are
`FileSlice`s. Appending is one write; the size, and with it everything that readers see, moves only after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from odradek.common.ports import Buffer
from odradek.log.files import FileCache, FileSlice, SharedFile
from odradek.log.read_verification import ReadVerification
from odradek.log.segment_file import MAX_RELATIVE_OFFSET, SegmentFile
from odradek.log.segment_indexes import INDEX_INTERVAL_BYTES, SegmentIndexes
from odradek.record.batch import BatchHeader


class DamagedBatchError(Exception):
    """At this position, in bytes, is no whole batch: a disk or somebody has changed what was written."""

    def __init__(self, segment: Segment, position: int) -> None:
        super().__init__(f"no whole batch at byte {position} of {segment.path}")
        self.segment = segment
        self.position = position


class Segment:
    """A segment of one log.

    Attributes:
        batches: the `.log` file.
        indexes: offsets, times and aborted transactions.
        verification: what readers may get without another look.
        scan_end: where the last `locate` stopped: at the batch that it found, at damage, or at the end.
        has_unsynced_indexes: no start would look for what sealing wrote, after a loss of power.
    """

    def __init__(
        self, files: FileCache, directory: Path, base_offset: int, *, created_ms: int, suffix: str = ""
    ) -> None:
        """`suffix` ends the names of files that are not the log's yet."""
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.batches = SegmentFile(files, directory, base_offset, suffix)
        self.indexes = SegmentIndexes(self.batches, suffix)
        self.verification = ReadVerification(self.batches)
        self.scan_end = 0
        self.has_unsynced_indexes = False
        self._first_timestamp_ms: int | None = None
        self._last_batch: tuple[int, int] | None = None  # offset and position of what was written last

    def open(self, *, create: bool = False) -> None:
        """Learn the size from the file, which stays closed until it is used; raises OSError."""
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
        """All of its files, the batches' first."""
        return [self.batches.path, *self.indexes.paths()]

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, chunks: Sequence[Buffer]) -> int:
        """Write batches whose headers already bear their offsets, by one write; returns the position they lie at.

        The caller moves the log's end, and then calls `index_batch` for each: an index that fails must not make the
        log give an offset twice (KAFKA-7866).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full; nothing of it is in the log, and a later append may fit.
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
        """Note a batch that was written, whose header bears its offset."""
        self.indexes.add(header, position, index_interval_bytes)
        self._last_batch = (header.base_offset, position)

    def first_timestamp_ms(self) -> int | None:
        """Of the first batch: the age that segment.ms means is counted from it. None where the segment is empty."""
        if self._first_timestamp_ms is None:
            for _, header in self.headers(0):
                self._first_timestamp_ms = header.max_timestamp
                break
        return self._first_timestamp_ms

    def would_overflow(self, last_offset: int) -> bool:
        """Whether an offset no longer fits into the 32 bits that indexes have for it."""
        return last_offset - self.base_offset > MAX_RELATIVE_OFFSET

    def was_cut(self) -> None:
        """Batches at the end are gone, or come back (`segment_cut`)."""
        self._last_batch = None
        if not self.size_bytes:
            self._first_timestamp_ms = None

    def seal(self) -> None:
        """No more batches come."""
        self.has_unsynced_indexes = True
        self.indexes.seal()

    def sync(self) -> None:
        """Block until the batches are durable; raises OSError, after which they are not."""
        self.hold().file.sync()

    def sync_file_and_directory(self) -> None:
        """Block until the bytes, and all names in the directory, are durable; raises OSError."""
        self.sync()
        self.batches.disk.sync_dir(self.directory)

    # -- reading ------------------------------------------------------------------------------------------------

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each whole batch from a batch boundary on."""
        return self.batches.headers(position)

    def hold(self) -> SharedFile:
        """The open file, good as long as it is held, whatever becomes of the segment; raises OSError."""
        return self.batches.hold()

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        return self.hold().file.read_at(position, header.size_bytes)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that holds `offset` or a later one; None where there is none.

        An index that was damaged below the recovery point is found out here, and rebuilt.
        """
        if self._last_batch is not None and offset >= self._last_batch[0]:
            start = self._last_batch[1]  # most readers are at the end, and need no index
        else:
            self.indexes.load()
            start = self.indexes.offsets.position_for(offset)
        self.scan_end = start
        is_entry_right, is_whole = start == 0, False
        for position, header in self.batches.headers(start):
            is_whole = True
            if not is_entry_right and not self.base_offset <= header.base_offset <= offset:
                break  # the entry says that a batch before the offset is here
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
        """Whether a batch ends where the index has a boundary: then damage alone is why no whole one begins there."""
        position = self.indexes.offsets.boundary_before(boundary - 1)
        for at, header in self.batches.headers(position):
            position = at + header.size_bytes
            if position >= boundary:
                break
        return position == boundary

    def position_of(self, offset: int) -> int:
        """Where the first batch is that holds `offset` or a later one; where the batches end if there is none."""
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
        """The bytes from a batch on, up to `max_bytes` and `end_position`; ends at a known boundary where it can.

        Args:
            offset: what is looked for, which is in the first batch or before it.
            end_offset: where the segment ends (exclusive).
        Raises:
            DamagedBatchError: the first batch is not what was written. A later one ends the answer before it.
        """
        available = end_position - position
        length = min(available, max_bytes)
        if length < first.size_bytes:
            if not at_least_one or available < first.size_bytes:
                return None
            length = first.size_bytes
        elif length < available:
            # A client drops a batch that is cut off: where the index knows a boundary, nothing is sent twice.
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

    def share_files(self, files: FileCache) -> None:
        """Open files of these from now on."""
        self.batches.files = files
        self.indexes.files_changed()

    def moved_to(self, directory: Path) -> None:
        """The directory has another name; who holds an open file keeps it."""
        self.batches.moved_to(directory)
        self.indexes.files_changed()
