"""One segment: a file of batches from `base_offset` on, with its indexes.

Positions are bytes in the file. Reading never copies: `locate` finds batches by their headers, and what is read are
`FileSlice`s. Appending is one write; the size, and with it everything that readers see, moves only after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from odradek.common.errors import StorageError
from odradek.common.ports import Buffer, Disk, File, is_disk_full, is_out_of_descriptors
from odradek.log.files import FileCache, FileSlice, SharedFile, rename_deleted
from odradek.log.index import CorruptIndexError, OffsetIndex, TimeIndex, TransactionIndex
from odradek.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, crc_is_valid

MAX_RELATIVE_OFFSET = 2**31 - 1
# One read covers an index interval, so that finding a batch is one or two reads.
SCAN_BYTES = 4096 + HEADER_BYTES
# Kafka's default of index.interval.bytes, for an index that is rebuilt where its topic's settings are not at hand.
INDEX_INTERVAL_BYTES = 4096
# What one read of bytes that are unverified since the start is verified and answered with: half a millisecond.
CHECKED_READ_BYTES = 1 << 20


class DamagedBatchError(Exception):
    """At this position, in bytes, is no whole batch: a disk or somebody has changed what was written."""

    def __init__(self, segment: Segment, position: int) -> None:
        super().__init__(f"no whole batch at byte {position} of {segment.path}")
        self.segment = segment
        self.position = position


def read_headers(
    file: File, position: int, end_position: int, segment_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch of a segment's file; reads no more than it is asked for.

    Ends before what cannot be a batch of this segment, which only damage below the recovery point brings about: a start
    does not verify there.

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


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """`<directory>/00000000000000000042.log` and the like."""
    return directory / f"{base_offset:020d}{suffix}"


class Segment:
    """A segment of one log."""

    def __init__(
        self, files: FileCache, directory: Path, base_offset: int, *, created_ms: int, suffix: str = ""
    ) -> None:
        """`suffix` ends the names of files that are not the log's yet."""
        self._files = files
        self._disk: Disk = files.disk
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.path = segment_path(directory, base_offset, ".log" + suffix)
        self.size_bytes = 0
        self.offsets = OffsetIndex(self._disk, segment_path(directory, base_offset, ".index" + suffix), base_offset)
        self.times = TimeIndex(self._disk, segment_path(directory, base_offset, ".timeindex" + suffix), base_offset)
        self.transactions = TransactionIndex(self._disk, segment_path(directory, base_offset, ".txnindex" + suffix))
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = -1
        self._first_timestamp_ms: int | None = None
        self._bytes_since_index = 0
        self._last_batch: tuple[int, int] | None = None
        # Bytes from the first on were written, or verified, by this process; a stretch was verified for a reader.
        self._checked_tail = 0
        self._checked_from = self._checked_to = 0
        self.scan_end = 0  # where the last `locate` that found nothing stopped; before the end only for damage
        self._indexes_loaded = True
        self.transactions_damaged = False
        self._newest_is_known = False  # though the indexes may have been let go
        self.replaced_by: Segment | None = None  # compaction put that one into its place
        self.is_dropped = False  # retention let it go: its name may soon be another file's
        self.has_unsynced_cut = False  # bytes of a write that did not fit: on disk until the next sync
        self.has_unsynced_indexes = False  # what sealing it wrote: no start would look for it after a loss of power
        self.is_sealed = False  # no more batches come: the indexes may be let go, and read again

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self, *, create: bool = False) -> None:
        """Learn the size from the file, which stays closed until it is used; raises OSError."""
        if create:
            self.size_bytes = self._files.get(self.path, create=True).file.size()
        else:
            self.size_bytes = self._checked_tail = self._disk.size(self.path)
        self._indexes_loaded = create

    def load_indexes(self, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Read the index files, once; rebuild them from the log where they are missing or wrong."""
        if self._indexes_loaded:
            return
        self._load_transactions()
        try:
            missing = self.size_bytes > 0 and not all(self._disk.exists(path) for path in self.paths()[1:3])
            self.offsets.load(log_bytes=self.size_bytes)
            self.times.load()
            missing = missing or not self._times_fit()
        except (CorruptIndexError, struct.error):
            missing = True
        if missing:
            self.rebuild_indexes(index_interval_bytes)
        else:
            newest = self.times.last()
            if newest is not None:
                self.max_timestamp_ms, self.max_timestamp_offset = newest
            first = next(iter(self.headers(0)), None)
            if first is not None:
                self._see_timestamp(first[1])
            self._bytes_since_index = self.size_bytes - self.offsets.last_position()
            for _, header in self.headers(self.offsets.last_position()):
                self._see_timestamp(header)
        self._loaded()

    def _times_fit(self) -> bool:
        """Whether the time index ends with what the log says: retention, and who looks for a time, go by its end."""
        newest = self.times.last()
        if newest is not None and not self._is_so_new(*newest):
            return False
        indexed = next(iter(self.headers(self.offsets.last_position())), None) if len(self.offsets) else None
        return indexed is None or indexed[1].max_timestamp <= (newest[0] if newest is not None else -1)

    def _is_so_new(self, timestamp_ms: int, offset: int) -> bool:
        """Whether an entry of the time index is what its batch says: any other flipped bit leaves it in order."""
        found = self.locate(offset)
        return found is not None and found[1].base_offset <= offset and found[1].max_timestamp == timestamp_ms

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset such that no record of this segment before it is as new as `timestamp_ms`; raises OSError."""
        self.load_indexes()
        entry = self.times.entry_before(timestamp_ms)
        if entry is not None and not self._is_so_new(*entry):
            self.rebuild_indexes(INDEX_INTERVAL_BYTES)
            entry = self.times.entry_before(timestamp_ms)
        return entry[1] if entry is not None else self.base_offset

    def _load_transactions(self) -> None:
        self._indexes_loaded = True
        try:
            self.transactions.load()
        except (CorruptIndexError, struct.error):
            self.transactions_damaged = True  # it needs the segments before this one to be rebuilt

    def _loaded(self) -> None:
        self._newest_is_known = True
        if self.is_sealed:
            self._files.keep_indexes(self.path, self._unload_indexes)

    def share_files(self, files: FileCache) -> None:
        """Open files of these from now on."""
        self._files = files
        if self._indexes_loaded:
            self._loaded()

    def moved_to(self, directory: Path) -> None:
        """The directory has another name; who holds an open file keeps it."""
        self.directory = directory
        self.path = directory / self.path.name
        for index in (self.offsets, self.times, self.transactions):
            index.path = directory / index.path.name
        if self._indexes_loaded:
            self._loaded()

    def _unload_indexes(self) -> None:
        """Let the indexes go, as they are in their files; raises OSError."""
        if not (self._indexes_loaded and self.is_sealed):
            return
        try:
            self.flush_indexes()
        except OSError as error:
            if is_disk_full(error):
                return  # they stay in memory, for want of a better place
            raise
        self.offsets, self.times = self.offsets.unloaded(), self.times.unloaded()
        self.transactions = self.transactions.unloaded()
        self._indexes_loaded = False

    @property
    def newest_is_known(self) -> bool:
        """Whether `max_timestamp_ms` is that of all batches."""
        return self._indexes_loaded or self._newest_is_known

    @property
    def is_unread(self) -> bool:
        """Whether the indexes are in their files alone."""
        return not self._indexes_loaded

    def begin_load(self, *, newest_only: bool = False) -> Callable[[], Segment] | None:
        """Work that reads the indexes off the loop, for `adopt` to take; None where they are loaded, or where
        `max_timestamp_ms` is known and `newest_only` says that it is enough. Raises OSError, as the work does."""
        if not self.is_unread or (newest_only and self._newest_is_known):
            return None
        size_bytes, disk = self.size_bytes, self._disk.hold(self.directory)

        def work() -> Segment:
            # A twin with files of its own: nothing that the loop uses is touched by another thread.
            twin = Segment(FileCache(disk, capacity=1), self.directory, self.base_offset, created_ms=self.created_ms)
            twin.size_bytes, twin._indexes_loaded = size_bytes, False
            twin.load_indexes()
            return twin

        return work

    def adopt(self, twin: Segment) -> None:
        """Take what `begin_load` read; where the segment has grown meanwhile, all is read again, here."""
        if self._indexes_loaded or self.is_dropped:
            return
        if twin.size_bytes != self.size_bytes:
            self.load_indexes()
            return
        self.offsets, self.times, self.transactions = twin.offsets, twin.times, twin.transactions
        for index in (self.offsets, self.times, self.transactions):
            index.disk, index.path = self._disk, self.directory / index.path.name
        self.max_timestamp_ms, self.max_timestamp_offset = twin.max_timestamp_ms, twin.max_timestamp_offset
        self._bytes_since_index = twin._bytes_since_index
        self.transactions_damaged = twin.transactions_damaged
        self._indexes_loaded = True
        self._loaded()

    def rebuild_indexes(self, index_interval_bytes: int) -> None:
        """Rebuild offset and time index from the batches' headers. The transaction index stays as its file has it."""
        self.clear_indexes()
        for position, header in self.headers(0):
            self.index_batch(header, position, index_interval_bytes)

    def clear_indexes(self) -> None:
        """Empty offset and time index, for `index_batch` of each batch. Raises OSError."""
        if not self._indexes_loaded:
            self._load_transactions()
        self.offsets.clear()
        self.times.clear()
        self.max_timestamp_ms = self.max_timestamp_offset = -1
        self._bytes_since_index = 0

    def index_anew_behind(self, position: int, index_interval_bytes: int) -> None:
        """Rebuild the indexes where they ended before damage that has been repaired."""
        self.load_indexes()
        last = self.offsets.last_position()
        if last <= position and self.size_bytes - last > 2 * index_interval_bytes:
            self.rebuild_indexes(index_interval_bytes)

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, chunks: Sequence[Buffer]) -> int:
        """Write batches whose headers already bear their offsets, by one write; returns the position they lie at.

        The caller moves the log's end, and then calls `index_batch` for each: an index that fails must not make the
        log give an offset twice (KAFKA-7866).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full; nothing of it is in the log, and a later append may fit.
            StorageError: the write failed in another way; the directory must go offline.
        """
        position = self.size_bytes
        try:
            written = self._files.get(self.path).file.write_at(position, chunks)
        except OSError as error:
            self._undo_write(position, error)
        self.size_bytes = position + written
        return position

    def _undo_write(self, position: int, error: OSError) -> NoReturn:
        log_dir = self.directory.parent
        if is_out_of_descriptors(error):
            raise self._files.no_space(log_dir, error) from None  # the file was not opened: nothing is written
        if is_disk_full(error):
            try:
                self._files.get(self.path).file.truncate(position)
            except OSError as second:
                raise StorageError(log_dir, f"{self.path}: {second}") from error
            # A loss of power may bring the bytes back, also when this segment is closed: the next flush must know.
            self.has_unsynced_cut = True
            raise self._files.no_space(log_dir, error) from None
        raise StorageError(log_dir, f"{self.path}: {error}") from error

    def index_batch(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Note a batch that was written, whose header bears its offset."""
        if header.max_timestamp > self.max_timestamp_ms:
            self._see_timestamp(header)
        if self._bytes_since_index > index_interval_bytes:
            self.offsets.append(header.base_offset + header.last_offset_delta, position)
            self.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += header.batch_length + LOG_OVERHEAD_BYTES
        self._last_batch = (header.base_offset, position)

    def _see_timestamp(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = header.last_offset

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

    def seal(self) -> None:
        """No more batches come."""
        self.is_sealed = self.has_unsynced_indexes = True
        self._loaded()

    def note_newest(self) -> None:
        """Put the newest timestamp into the time index, as Kafka does when it rolls."""
        self.load_indexes()
        self.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)

    def flush_indexes(self, *, sync: bool = False) -> None:
        """Write index entries that are only in memory; raises OSError.

        Offset and time index exist from then on, be they empty: Apache Kafka scans a segment that lacks one.
        """
        if self._indexes_loaded:
            self.offsets.flush(create=True, sync=sync)
            self.times.flush(create=True, sync=sync)
            self.transactions.flush(sync=sync)

    @property
    def index_bytes(self) -> int:
        """Of the larger of the two indexes."""
        return max(self.offsets.size_bytes, self.times.size_bytes)

    def sync(self) -> None:
        """Block until the batches are durable; raises OSError, after which they are not."""
        self._files.get(self.path).file.sync()

    def sync_with_names(self) -> None:
        """Block until the bytes, and all names in the directory, are durable; raises OSError."""
        self.sync()
        self._disk.sync_dir(self.directory)

    def truncate_to(self, position: int, end_offset: int) -> None:
        """Cut at a batch boundary; both are exclusive ends. Batches may follow again. Raises OSError."""
        self.load_indexes()
        self.is_sealed = False
        self._files.get(self.path).file.truncate(position)
        self.size_bytes = position
        self._checked_tail = min(self._checked_tail, position)
        self._restart_indexes(end_offset, position)

    # -- reading ------------------------------------------------------------------------------------------------

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each whole batch from a batch boundary on."""
        return read_headers(self._files.get(self.path).file, position, self.size_bytes, self.base_offset)

    def hold(self) -> SharedFile:
        """The open file, good as long as it is held, whatever becomes of the segment; raises OSError."""
        return self._files.get(self.path)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that holds `offset` or a later one; None where there is none.

        An index that was damaged below the recovery point is found out here, and rebuilt.
        """
        if self._last_batch is not None and offset >= self._last_batch[0]:
            start = self._last_batch[1]
        else:
            self.load_indexes()
            start = self.offsets.position_for(offset)
        is_known = start == 0
        self.scan_end = start
        for position, header in self.headers(start):
            if not is_known and not (header.magic == MAGIC and self.base_offset <= header.base_offset <= offset):
                break
            is_known = True
            if header.last_offset >= offset:
                return position, header
            self.scan_end = position + header.size_bytes
        if is_known:
            return None
        self.rebuild_indexes(INDEX_INTERVAL_BYTES)
        self.scan_end = 0
        for position, header in self.headers(0):
            if header.last_offset >= offset:
                return position, header
            self.scan_end = position + header.size_bytes
        return None

    def position_of(self, offset: int) -> int:
        """Where the first batch is that holds `offset` or a later one; where the batches end if there is none."""
        found = self.locate(offset)
        return found[0] if found is not None else self.scan_end

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
            self.load_indexes()
            boundary = self.offsets.boundary_before(position + length)
            if boundary >= position + first.size_bytes:
                length = boundary - position
        if (
            position < self._checked_tail
            and not self._checked_from <= position <= position + length <= self._checked_to
        ):
            length = self._check(position, first, length, offset, end_offset)
        return FileSlice(self._files.get(self.path), position, length)

    def _check(self, position: int, first: BatchHeader, length: int, offset: int, end_offset: int) -> int:
        """Verify the whole batches of a slice, before a reader gets bytes that were here when this process began.

        No checksum covers a batch's offset: one that leaves a gap, and whose successor goes back, bears a wrong one.

        Returns:
            How many bytes may be given, at least the first batch's.
        """
        length = min(length, max(first.size_bytes, CHECKED_READ_BYTES))
        data = memoryview(self._files.get(self.path).file.read_at(position, length))
        checked, expected_offset, before_gap = 0, min(first.base_offset, offset), 0
        while checked + HEADER_BYTES <= len(data):
            header = BatchHeader.read(data, checked)
            end = checked + header.size_bytes
            fits = header.size_bytes >= HEADER_BYTES and position + end <= self.size_bytes and header.magic == MAGIC
            if fits and end > len(data):
                break  # cut off by the reader's limit
            in_order = expected_offset <= header.base_offset <= header.last_offset < end_offset
            if not (fits and in_order and crc_is_valid(data[checked:end], header)):
                went_back = fits and header.base_offset < expected_offset
                length = checked = before_gap if went_back else checked
                break
            before_gap = checked if header.base_offset > expected_offset else end
            checked, expected_offset = end, header.last_offset + 1
        if checked == 0:
            raise DamagedBatchError(self, position)
        if not self._checked_from <= position <= self._checked_to:
            self._checked_from = position
        self._checked_to = position + checked
        if self._checked_from <= self._checked_tail <= self._checked_to:
            self._checked_tail = self._checked_from
        return length

    def distrust(self) -> None:
        """Verify for readers also what this process wrote or has verified: some of it has changed."""
        self._checked_tail, self._checked_from, self._checked_to = self.size_bytes, 0, 0

    def all_checked(self) -> None:
        """Recovery has verified every batch."""
        self._checked_tail = 0

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        return self._files.get(self.path).file.read_at(position, header.size_bytes)

    def _restart_indexes(self, end_offset: int, position: int) -> None:
        self.offsets.truncate(end_offset, position)
        self.times.truncate(end_offset)
        self.transactions.truncate(end_offset)
        self._bytes_since_index = position - self.offsets.last_position()
        self._last_batch = None
        self.max_timestamp_ms, self.max_timestamp_offset = self.times.last() or (-1, -1)
        if position == 0:
            self._first_timestamp_ms = None
        for at, header in self.headers(self.offsets.last_position()):
            if at >= position:
                break
            self._see_timestamp(header)

    # -- ending -------------------------------------------------------------------------------------------------

    def paths(self) -> list[Path]:
        return [self.path, self.offsets.path, self.times.path, self.transactions.path]

    def forget(self) -> None:
        """The log has let go of this segment: its files are not opened by name any more."""
        self.is_dropped = True
        for path in self.paths():
            self._files.forget(path)

    def mark_deleted(self) -> list[Path]:
        """Rename the files to `.deleted`, so that they are gone for the log and still there for readers."""
        self.forget()
        return rename_deleted(self._disk, self.paths())
