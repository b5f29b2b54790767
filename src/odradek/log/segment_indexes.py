"""The indexes of one segment: loaded at first use, rebuilt from the batches if missing or damaged, unloaded if many are
loaded.

Another thread loads them into a second object with its own open files; the event loop then takes over that object's
entries.
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

# Kafka's default of index.interval.bytes, for rebuilds without the topic's settings.
INDEX_INTERVAL_BYTES = 4096


class SegmentIndexes:
    """The offset, time and transaction index of one segment.

    Attributes:
        max_timestamp_ms, max_timestamp_offset: of the record with the newest timestamp; -1 if there is none.
        is_loaded: whether the entries are in memory.
        is_sealed: whether the segment is closed, so that the indexes may be unloaded.
        transactions_damaged: the transaction index cannot be read; the whole log is needed to rebuild it.
    """

    def __init__(self, batches: SegmentFile, suffix: str = "") -> None:
        """`suffix` ends the file names of a segment that is not yet part of the log."""
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
        """Whether `max_timestamp_ms` covers all batches; it stays so after an unload."""
        return self.is_loaded or self._newest_was_known

    @property
    def size_bytes(self) -> int:
        """The size of the larger of offset and time index."""
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
        """Add a written batch; an entry is written if the last one is `interval_bytes` back."""
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
        """Add the newest timestamp to the time index, as Kafka does at a roll."""
        self.load()
        self.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset such that all records of the segment before it are older than `timestamp_ms`. Raises OSError."""
        self.load()
        entry = self.times.entry_before(timestamp_ms)
        if entry is not None and not self._entry_matches_batch(*entry):
            self.rebuild(INDEX_INTERVAL_BYTES)
            entry = self.times.entry_before(timestamp_ms)
        return entry[1] if entry is not None else self._batches.base_offset

    def _entry_matches_batch(self, timestamp_ms: int, offset: int) -> bool:
        """Whether an entry of the time index matches its batch; damage may keep the entries in order."""
        for _, header in self._batches.headers(self.offsets.position_for(offset)):
            if header.last_offset >= offset:
                return header.base_offset <= offset and header.max_timestamp == timestamp_ms
        return False

    # -- loading ------------------------------------------------------------------------------------------------

    def load(self, interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Read the index files, once; rebuild them from the batches if they are missing or damaged."""
        if self.is_loaded:
            return
        self._load_transactions()
        if self._read_files():
            self._find_newest()
        else:
            self.rebuild(interval_bytes)
        self._loaded()

    def _read_files(self) -> bool:
        """Read the offset and time index; returns whether they are valid."""
        disk = self._batches.disk
        try:
            is_missing = self._batches.size_bytes > 0 and not all(disk.exists(path) for path in self.paths()[:2])
            self.offsets.load(log_bytes=self._batches.size_bytes)
            self.times.load()
            return not is_missing and self._time_index_is_consistent()
        except (CorruptIndexError, struct.error):
            return False

    def _find_newest(self) -> None:
        """Find the newest timestamp from the time index, the first batch, and the batches behind the last entry."""
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
        """Whether the end of the time index matches the batches: retention and searches by time rely on it."""
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
        """Unload the entries after a flush. Raises OSError."""
        if not (self.is_loaded and self.is_sealed):
            return
        try:
            self.flush()
        except OSError as error:
            if is_disk_full(error):
                return  # keep them in memory until there is space
            raise
        self.offsets, self.times = self.offsets.unloaded(), self.times.unloaded()
        self.transactions = self.transactions.unloaded()
        self.is_loaded = False

    def begin_load(self, *, newest_only: bool = False) -> Callable[[], SegmentIndexes] | None:
        """Return work that loads the indexes off the loop, for `install_indexes`.

        None if they are loaded, or if `newest_only` is set and `max_timestamp_ms` is known. Raises OSError, as the work
        does.
        """
        if self.is_loaded or (newest_only and self._newest_was_known):
            return None
        directory, base, size_bytes = self._batches.directory, self._batches.base_offset, self._batches.size_bytes
        disk = self._batches.disk.hold(directory)

        def work() -> SegmentIndexes:
            # Separate files: this thread must not use those of the loop.
            batches = SegmentFile(FileCache(disk, capacity=1), directory, base, "")
            batches.size_bytes = size_bytes
            twin = SegmentIndexes(batches)
            twin.is_loaded = False
            twin.load()
            return twin

        return work

    def install_indexes(self, twin: SegmentIndexes) -> None:
        """Install the result of `begin_load`; if the segment has grown, load the indexes here instead."""
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
        """Rebuild the offset and time index from the headers of the batches. The transaction index is unchanged."""
        self.clear()
        for position, header in self.surviving_headers(0):
            self.add(header, position, interval_bytes)

    def rebuild_from(self, position: int, interval_bytes: int) -> None:
        """Rebuild the indexes if they end before a repaired range."""
        self.load()
        last = self.offsets.last_position()
        if last <= position and self._batches.size_bytes - last > 2 * interval_bytes:
            self.rebuild(interval_bytes)

    def clear(self) -> None:
        """Empty the offset and time index, before `add` of each batch. Raises OSError."""
        if not self.is_loaded:
            self._load_transactions()
        self.offsets.clear()
        self.times.clear()
        self.max_timestamp_ms = self.max_timestamp_offset = -1
        self._bytes_since_entry = 0

    def truncate(self, end_offset: int, position: int) -> None:
        """Remove the entries behind the new end of a truncated segment. The indexes are loaded."""
        self.offsets.truncate(end_offset, position)
        self.times.truncate(end_offset)
        self.transactions.truncate(end_offset)
        self._bytes_since_entry = position - self.offsets.last_position()
        self.max_timestamp_ms, self.max_timestamp_offset = self.times.last() or (-1, -1)
        for _, header in self.surviving_headers(self.offsets.last_position()):
            self._update_newest(header)

    # -- their files --------------------------------------------------------------------------------------------

    def flush(self, *, sync: bool = False) -> None:
        """Write new entries. Raises OSError.

        The offset and time index exist afterwards, even if empty: Apache Kafka scans a segment that lacks one.
        """
        if self.is_loaded:
            self.offsets.flush(create=True, sync=sync)
            self.times.flush(create=True, sync=sync)
            self.transactions.flush(sync=sync)

    def seal(self) -> None:
        """Record that the segment is closed."""
        self.is_sealed = True
        self._loaded()

    def files_changed(self) -> None:
        """Use the segment's new file cache, or the directory's new name."""
        for index in (self.offsets, self.times, self.transactions):
            index.path = self._batches.directory / index.path.name
        if self.is_loaded:
            self._loaded()
