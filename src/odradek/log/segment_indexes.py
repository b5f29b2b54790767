"""The indexes of one segment: read from their files when they are first needed, rebuilt from the batches where they are
missing or wrong, and let go again where a broker has many.

Off the loop they are loaded by a twin, whose open files are its own; the loop then adopts what the twin has read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.common.ports import is_disk_full
from odradek.log.files import FileCache
from odradek.log.holes import OnHole, surviving_headers
from odradek.log.index import CorruptIndexError, OffsetIndex, TimeIndex, TransactionIndex
from odradek.log.segment_file import SegmentFile, segment_path
from odradek.record.batch import LOG_OVERHEAD_BYTES, BatchHeader

# Kafka's default of index.interval.bytes, for an index that is rebuilt where its topic's settings are not at hand.
INDEX_INTERVAL_BYTES = 4096


class SegmentIndexes:
    """Offsets, times and aborted transactions of one segment.

    Attributes:
        max_timestamp_ms, max_timestamp_offset: of the newest record; -1 where there is none.
        is_loaded: whether they are in memory; else in their files alone.
        is_sealed: no more batches come, so that they may be let go.
        transactions_damaged: the index of aborted transactions cannot be read; the whole log is needed to rebuild it.
    """

    def __init__(self, batches: SegmentFile, suffix: str = "") -> None:
        """`suffix` ends the names of files that are not the log's yet."""
        directory, base = batches.directory, batches.base_offset
        self._batches = batches
        self.offsets = OffsetIndex(batches.disk, segment_path(directory, base, ".index" + suffix), base)
        self.times = TimeIndex(batches.disk, segment_path(directory, base, ".timeindex" + suffix), base)
        self.transactions = TransactionIndex(batches.disk, segment_path(directory, base, ".txnindex" + suffix))
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = -1
        self.is_loaded = True
        self.is_sealed = False
        self.transactions_damaged = False
        self._newest_was_known = False
        self._bytes_since_entry = 0

    @property
    def newest_is_known(self) -> bool:
        """Whether `max_timestamp_ms` is that of all batches; it stays so when the indexes are let go."""
        return self.is_loaded or self._newest_was_known

    @property
    def size_bytes(self) -> int:
        """Of the larger of offset and time index."""
        return max(self.offsets.size_bytes, self.times.size_bytes)

    def paths(self) -> list[Path]:
        return [self.offsets.path, self.times.path, self.transactions.path]

    def surviving_headers(self, position: int, on_hole: OnHole | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each whole batch from a boundary on, those behind a hole, too. Raises OSError."""
        return surviving_headers(self._batches, position, self._boundary_after, on_hole)

    def _boundary_after(self, position: int) -> int | None:
        self.load()
        return self.offsets.boundary_after(position)

    # -- one entry ----------------------------------------------------------------------------------------------

    def add(self, header: BatchHeader, position: int, interval_bytes: int) -> None:
        """Note a batch that was written; an entry is made where the last one is `interval_bytes` back."""
        if header.max_timestamp > self.max_timestamp_ms:
            self._update_newest(header)
        if self._bytes_since_entry > interval_bytes:
            self.offsets.append(header.base_offset + header.last_offset_delta, position)
            self.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.batch_length + LOG_OVERHEAD_BYTES

    def _update_newest(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = header.last_offset

    def append_newest_timestamp(self) -> None:
        """Put the newest timestamp into the time index, as Kafka does when it rolls."""
        self.load()
        self.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset such that no record of this segment before it is as new as `timestamp_ms`; raises OSError."""
        self.load()
        entry = self.times.entry_before(timestamp_ms)
        if entry is not None and not self._entry_matches_batch(*entry):
            self.rebuild(INDEX_INTERVAL_BYTES)
            entry = self.times.entry_before(timestamp_ms)
        return entry[1] if entry is not None else self._batches.base_offset

    def _entry_matches_batch(self, timestamp_ms: int, offset: int) -> bool:
        """Whether an entry of the time index is what its batch says: any other flipped bit leaves it in order."""
        for _, header in self._batches.headers(self.offsets.position_for(offset)):
            if header.last_offset >= offset:
                return header.base_offset <= offset and header.max_timestamp == timestamp_ms
        return False

    # -- loading ------------------------------------------------------------------------------------------------

    def load(self, interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Read the index files, once; rebuild them from the batches where they are missing or wrong."""
        if self.is_loaded:
            return
        self._load_transactions()
        if self._read_files():
            self._find_newest()
        else:
            self.rebuild(interval_bytes)
        self._loaded()

    def _read_files(self) -> bool:
        """Whether offset and time index are what was written, as far as their files and the batches say."""
        disk = self._batches.disk
        try:
            is_missing = self._batches.size_bytes > 0 and not all(disk.exists(path) for path in self.paths()[:2])
            self.offsets.load(log_bytes=self._batches.size_bytes)
            self.times.load()
            return not is_missing and self._time_index_is_consistent()
        except (CorruptIndexError, struct.error):
            return False

    def _find_newest(self) -> None:
        """Find the newest timestamp: of the time index, the first batch, and those behind the last entry."""
        newest = self.times.last()
        if newest is not None:
            self.max_timestamp_ms, self.max_timestamp_offset = newest
        first = next(iter(self._batches.headers(0)), None)
        if first is not None:
            self._update_newest(first[1])
        self._bytes_since_entry = self._batches.size_bytes - self.offsets.last_position()
        for _, header in self.surviving_headers(self.offsets.last_position()):
            self._update_newest(header)

    def _time_index_is_consistent(self) -> bool:
        """Whether the time index ends with what the log says: retention, and who looks for a time, go by its end."""
        newest = self.times.last()
        if newest is not None and not self._entry_matches_batch(*newest):
            return False
        indexed = next(iter(self._batches.headers(self.offsets.last_position())), None) if len(self.offsets) else None
        return indexed is None or indexed[1].max_timestamp <= (newest[0] if newest is not None else -1)

    def _load_transactions(self) -> None:
        self.is_loaded = True
        try:
            self.transactions.load()
        except (CorruptIndexError, struct.error):
            self.transactions_damaged = True

    def _loaded(self) -> None:
        self._newest_was_known = True
        if self.is_sealed:
            self._batches.files.cache_indexes(self._batches.path, self._unload)

    def _unload(self) -> None:
        """Let the indexes go, as they are in their files; raises OSError."""
        if not (self.is_loaded and self.is_sealed):
            return
        try:
            self.flush()
        except OSError as error:
            if is_disk_full(error):
                return  # they stay in memory, for want of a better place
            raise
        self.offsets, self.times = self.offsets.unloaded(), self.times.unloaded()
        self.transactions = self.transactions.unloaded()
        self.is_loaded = False

    def begin_load(self, *, newest_only: bool = False) -> Callable[[], SegmentIndexes] | None:
        """Work that reads the indexes off the loop, for `install_indexes` to take; None where they are loaded, or where
        `max_timestamp_ms` is known and `newest_only` says that it is enough. Raises OSError, as the work does."""
        if self.is_loaded or (newest_only and self._newest_was_known):
            return None
        directory, base, size_bytes = self._batches.directory, self._batches.base_offset, self._batches.size_bytes
        disk = self._batches.disk.hold(directory)

        def work() -> SegmentIndexes:
            # With files of its own: nothing that the loop uses is touched by another thread.
            batches = SegmentFile(FileCache(disk, capacity=1), directory, base, "")
            batches.size_bytes = size_bytes
            twin = SegmentIndexes(batches)
            twin.is_loaded = False
            twin.load()
            return twin

        return work

    def install_indexes(self, twin: SegmentIndexes) -> None:
        """Take what `begin_load` read; where the segment has grown meanwhile, all is read again, here."""
        batches = self._batches
        if self.is_loaded or batches.is_dropped:
            return
        if twin._batches.size_bytes != batches.size_bytes:
            self.load()
            return
        self.offsets, self.times, self.transactions = twin.offsets, twin.times, twin.transactions
        for index in (self.offsets, self.times, self.transactions):
            index.disk, index.path = batches.disk, batches.directory / index.path.name
        self.max_timestamp_ms, self.max_timestamp_offset = twin.max_timestamp_ms, twin.max_timestamp_offset
        self._bytes_since_entry = twin._bytes_since_entry
        self.transactions_damaged = twin.transactions_damaged
        self.is_loaded = True
        self._loaded()

    # -- rebuilding ---------------------------------------------------------------------------------------------

    def rebuild(self, interval_bytes: int) -> None:
        """Rebuild offset and time index from the batches' headers. The transaction index stays as its file has it."""
        self.clear()
        for position, header in self.surviving_headers(0):
            self.add(header, position, interval_bytes)

    def rebuild_behind(self, position: int, interval_bytes: int) -> None:
        """Rebuild the indexes where they ended before damage that has been repaired."""
        self.load()
        last = self.offsets.last_position()
        if last <= position and self._batches.size_bytes - last > 2 * interval_bytes:
            self.rebuild(interval_bytes)

    def clear(self) -> None:
        """Empty offset and time index, for `add` of each batch. Raises OSError."""
        if not self.is_loaded:
            self._load_transactions()
        self.offsets.clear()
        self.times.clear()
        self.max_timestamp_ms = self.max_timestamp_offset = -1
        self._bytes_since_entry = 0

    def truncate(self, end_offset: int, position: int) -> None:
        """The segment was cut there, and ends there by now; they are loaded."""
        self.offsets.truncate(end_offset, position)
        self.times.truncate(end_offset)
        self.transactions.truncate(end_offset)
        self._bytes_since_entry = position - self.offsets.last_position()
        self.max_timestamp_ms, self.max_timestamp_offset = self.times.last() or (-1, -1)
        for _, header in self.surviving_headers(self.offsets.last_position()):
            self._update_newest(header)

    # -- their files --------------------------------------------------------------------------------------------

    def flush(self, *, sync: bool = False) -> None:
        """Write entries that are only in memory; raises OSError.

        Offset and time index exist from then on, be they empty: Apache Kafka scans a segment that lacks one.
        """
        if self.is_loaded:
            self.offsets.flush(create=True, sync=sync)
            self.times.flush(create=True, sync=sync)
            self.transactions.flush(sync=sync)

    def seal(self) -> None:
        """No more batches come."""
        self.is_sealed = True
        self._loaded()

    def files_changed(self) -> None:
        """The segment's open files, or its directory's name, are other ones from now on."""
        for index in (self.offsets, self.times, self.transactions):
            index.path = self._batches.directory / index.path.name
        if self.is_loaded:
            self._loaded()
