"""The sparse indexes of a segment, in Kafka's formats.

- offset index: (offset - base_offset: int32, position: int32), about one entry for each index.interval.bytes; the
  offset is the last one of the batch at that position
- time index: (timestamp ms: int64, offset - base_offset: int32): no record up to that offset has a later timestamp
- transaction index: (version int16, producer id, first offset, last offset, last stable offset: int64 each), one entry
  for each aborted transaction that ends in this segment

Entries are loaded at first use and kept in memory. `flush` writes new ones before the recovery point passes their
records; those that a crash loses are rebuilt from the log. `load` verifies each file.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from odradek.common.ports import Disk, is_out_of_descriptors, read_file

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
# The larger entry of the two indexes that segment.index.bytes limits.
INDEX_ENTRY_BYTES = _TIME_ENTRY.size


class CorruptIndexError(Exception):
    """The file is no valid index of this segment, and must be rebuilt."""


class IndexFile:
    """An index file, and its entries that are not written yet.

    Attributes:
        size_bytes: of all entries.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.path = path
        self.size_bytes = 0
        self._pending = bytearray()
        self._flushed_bytes = 0
        self._is_longer = False  # the file still has entries that were truncated
        self._exists = False

    def _load_bytes(self, entry_bytes: int) -> bytes:
        self._exists = self.disk.exists(self.path)
        data = read_file(self.disk, self.path) if self._exists else b""
        if len(data) % entry_bytes:
            raise CorruptIndexError(f"{self.path}: {len(data)} bytes are not whole entries")
        self._flushed_bytes = self.size_bytes = len(data)
        return data

    def _add(self, entry: bytes) -> None:
        self._pending += entry
        self.size_bytes += len(entry)

    def flush(self, *, create: bool = False, sync: bool = False) -> None:
        """Write pending entries; `create` also creates an empty file. Raises OSError."""
        is_idle = not self._pending and not self._is_longer
        if is_idle and not (create and not self._exists) and not (sync and self._exists):
            return
        file = self.disk.open(self.path, create=True)
        try:
            if self._is_longer:
                file.truncate(self._flushed_bytes)
                self._is_longer = False
            if self._pending:
                file.write_at(self._flushed_bytes, [self._pending])
                self._flushed_bytes += len(self._pending)
                self._pending = bytearray()
            if sync:
                file.sync()
        finally:
            file.close()
        self._exists = True

    def _truncate_to(self, size_bytes: int) -> None:
        """Keep the first `size_bytes` of the entries; written ones stay in the file."""
        self.size_bytes = size_bytes
        if size_bytes >= self._flushed_bytes:
            del self._pending[size_bytes - self._flushed_bytes :]
            return
        self._pending = bytearray()
        self._shorten(size_bytes)

    def _rewrite(self, data: bytes) -> None:
        self._pending = bytearray(data)
        self._flushed_bytes, self.size_bytes = 0, len(data)
        if self.disk.exists(self.path):
            self._shorten(0)

    def _shorten(self, size_bytes: int) -> None:
        """Truncate the file; without a free descriptor the next flush does it."""
        self._flushed_bytes, self._is_longer = size_bytes, True
        try:
            file = self.disk.open(self.path)
        except OSError as error:
            if is_out_of_descriptors(error):
                return
            raise
        try:
            file.truncate(size_bytes)
            self._is_longer = False
        finally:
            file.close()


class OffsetIndex(IndexFile):
    """The positions of batches by offset."""

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        super().__init__(disk, path)
        self._base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    def unloaded(self) -> OffsetIndex:
        """An empty copy, before `load`."""
        return OffsetIndex(self.disk, self.path, self._base_offset)

    def __len__(self) -> int:
        return len(self._offsets)

    def load(self, *, log_bytes: int) -> None:
        """Read the file. Raises CorruptIndexError if offsets or positions do not rise, or exceed the segment."""
        data = self._load_bytes(_OFFSET_ENTRY.size)
        entries = array("i", data)
        entries.byteswap()
        self._offsets, self._positions = entries[0::2], entries[1::2]
        # Sorting a sorted list takes a tenth of the time of a loop: a full segment has 250,000 entries.
        positions = self._positions.tolist()
        if positions != sorted(set(positions)):
            raise CorruptIndexError(f"{self.path}: positions do not rise")
        if self._positions and (self._positions[-1] >= log_bytes or self._offsets[0] < 0):
            raise CorruptIndexError(f"{self.path}: entries are outside the segment")

    def append(self, last_offset: int, position: int) -> None:
        relative = last_offset - self._base_offset
        self._offsets.append(relative)
        self._positions.append(position)
        self._add(_OFFSET_ENTRY.pack(relative, position))

    def position_for(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`; 0 if there is no entry."""
        index = bisect_right(self._offsets, offset - self._base_offset) - 1
        return self._positions[index] if index >= 0 else 0

    def boundary_before(self, position: int) -> int:
        """The largest indexed batch boundary at or before `position`; 0 if there is none."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def positions_after(self, position: int) -> list[int]:
        """The indexed batch boundaries behind a position, in order."""
        return self._positions[bisect_right(self._positions, position) :].tolist()

    def boundary_after(self, position: int) -> int | None:
        """The first indexed batch boundary behind a position; None if there is none."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self._positions) else None

    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def truncate(self, end_offset: int, end_position: int) -> None:
        """Remove entries at or behind an offset or a position (both exclusive ends)."""
        keep = len(self._offsets)
        while keep and (
            self._offsets[keep - 1] + self._base_offset >= end_offset or self._positions[keep - 1] >= end_position
        ):
            keep -= 1
        if keep < len(self._offsets):
            del self._offsets[keep:]
            del self._positions[keep:]
            pairs = zip(self._offsets, self._positions, strict=True)
            self._rewrite(b"".join(_OFFSET_ENTRY.pack(*pair) for pair in pairs))

    def clear(self) -> None:
        self._offsets, self._positions = array("i"), array("i")
        self._rewrite(b"")


class TimeIndex(IndexFile):
    """The maximum timestamps up to offsets."""

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        super().__init__(disk, path)
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    def unloaded(self) -> TimeIndex:
        """An empty copy, before `load`."""
        return TimeIndex(self.disk, self.path, self._base_offset)

    def __len__(self) -> int:
        return len(self._timestamps)

    def load(self) -> None:
        """Read the file. Raises CorruptIndexError if timestamps or offsets do not rise."""
        data = self._load_bytes(_TIME_ENTRY.size)
        fields = struct.unpack(">" + "qi" * (len(data) // _TIME_ENTRY.size), data)
        timestamps, offsets = list(fields[0::2]), list(fields[1::2])
        if timestamps != sorted(timestamps) or offsets != sorted(offsets):
            raise CorruptIndexError(f"{self.path}: timestamps or offsets do not rise")
        if offsets and (offsets[0] < 0 or timestamps[0] < 0):
            raise CorruptIndexError(f"{self.path}: a negative timestamp, or an offset below the base offset")
        self._timestamps, self._offsets = array("q", timestamps), array("i", offsets)

    def maybe_append(self, timestamp_ms: int, offset: int) -> bool:
        """Add an entry if it is newer than the last; returns whether it was added."""
        relative = offset - self._base_offset
        if self._timestamps and (timestamp_ms <= self._timestamps[-1] or relative < self._offsets[-1]):
            return False
        if timestamp_ms < 0:
            return False
        self._timestamps.append(timestamp_ms)
        self._offsets.append(relative)
        self._add(_TIME_ENTRY.pack(timestamp_ms, relative))
        return True

    def last(self) -> tuple[int, int] | None:
        """The (timestamp, offset) of the newest entry."""
        if not self._timestamps:
            return None
        return self._timestamps[-1], self._offsets[-1] + self._base_offset

    def entry_before(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The (timestamp, offset) of the last entry before `timestamp_ms`; all records up to it are older."""
        index = bisect_right(self._timestamps, timestamp_ms - 1) - 1
        return (self._timestamps[index], self._offsets[index] + self._base_offset) if index >= 0 else None

    def truncate(self, end_offset: int) -> None:
        """Remove entries at or behind an offset (exclusive end)."""
        keep = len(self._offsets)
        while keep and self._offsets[keep - 1] + self._base_offset >= end_offset:
            keep -= 1
        if keep < len(self._offsets):
            del self._timestamps[keep:]
            del self._offsets[keep:]
            pairs = zip(self._timestamps, self._offsets, strict=True)
            self._rewrite(b"".join(_TIME_ENTRY.pack(*pair) for pair in pairs))

    def clear(self) -> None:
        self._timestamps, self._offsets = array("q"), array("i")
        self._rewrite(b"")


class AbortedTransaction(NamedTuple):
    """An aborted transaction; offsets are inclusive. `last_stable_offset` is from the time of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(IndexFile):
    """The aborted transactions that end in a segment. Most segments have none, and no file."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(disk, path)
        self.entries: list[AbortedTransaction] = []
        self._unsynced = False

    def unloaded(self) -> TransactionIndex:
        """An empty copy, before `load`."""
        return TransactionIndex(self.disk, self.path)

    def load(self) -> None:
        """Read the file. Raises CorruptIndexError for an unknown version, or offsets that decrease."""
        entries: list[AbortedTransaction] = []
        for version, *fields in _TXN_ENTRY.iter_unpack(self._load_bytes(_TXN_ENTRY.size)):
            entry = AbortedTransaction(*fields)
            if version != 0 or entry.first_offset >= entry.last_offset:  # the last offset is the marker's
                raise CorruptIndexError(f"{self.path}: an invalid entry of version {version}")
            if entries and entry.last_offset <= entries[-1].last_offset:
                raise CorruptIndexError(f"{self.path}: markers do not rise")
            entries.append(entry)
        self.entries = entries

    def append(self, entry: AbortedTransaction) -> None:
        self.entries.append(entry)
        self._add(_TXN_ENTRY.pack(0, *entry))
        self._unsynced = True

    def mark_unsynced(self) -> None:
        """Count the file as not synced: the process was killed, and writes may be in the page cache only."""
        self._unsynced = self._exists

    @property
    def is_written(self) -> bool:
        """Whether the file has all entries."""
        return not self._pending and not self._is_longer

    @property
    def is_unsynced(self) -> bool:
        """Whether an entry or a truncation is not synced yet."""
        return self._unsynced

    def pop_unsynced(self) -> bool:
        """Return `is_unsynced` and clear it; the caller flushes and syncs the file."""
        unsynced, self._unsynced = self._unsynced, False
        return unsynced

    def truncate(self, end_offset: int) -> None:
        kept = [entry for entry in self.entries if entry.last_offset < end_offset]
        if len(kept) < len(self.entries):
            self.entries = kept
            self._truncate_to(len(kept) * _TXN_ENTRY.size)
            # A start trusts entries behind the recovery point: stale ones would hide later records.
            self._unsynced = True

    def clear(self) -> None:
        if self.entries or self.size_bytes or self.disk.exists(self.path):
            self.entries = []
            self._rewrite(b"")
