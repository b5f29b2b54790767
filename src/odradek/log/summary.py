"""Aggregates over all segments of a log, which may have thousands: sizes, newest timestamps, aborted transactions.

Each value is computed at its first use and updated as the segments change. `segment_list` owns the lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from pathlib import Path

from odradek.common.ports import Disk
from odradek.log.segment import Segment

# The newest timestamp of an empty segment.
NO_TIMESTAMP_MS = -1


class SegmentSummary:
    """Aggregates over the segments of one log; the last segment is the active one."""

    def __init__(self, segments: list[Segment], bases: list[int]) -> None:
        """`bases` are the base offsets of the segments."""
        self._segments = segments
        self._bases = bases
        # The running maximum of the timestamps of the closed segments; it may not reach the last yet.
        self._newest: list[int] = []
        self._closed_bytes: int | None = None
        # Base offsets of the segments that may have aborted transactions.
        self._aborted: list[int] | None = None
        # All segments with a lower base offset have no flag for bytes or indexes that are not durable.
        self._flagged_from = 0

    # -- changes ------------------------------------------------------------------------------------------------

    def rolled(self, closed: Segment) -> None:
        """Update after a roll; `closed` was the active segment."""
        if self._closed_bytes is not None:
            self._closed_bytes += closed.size_bytes

    def truncated(self) -> None:
        """Update after segments were removed from the end, or all were replaced by a new one."""
        del self._newest[len(self._segments) - 1 :]
        self._closed_bytes = None
        # The truncated segment is not durable, and may be closed before the next flush.
        self._flagged_from = min(self._flagged_from, self._bases[-1])
        if self._aborted is not None:
            del self._aborted[bisect_right(self._aborted, self._bases[-1]) :]

    def dropped(self) -> None:
        """Update after segments were removed from the front."""
        self._newest.clear()
        self._closed_bytes = None
        if self._aborted is not None:
            del self._aborted[: bisect_left(self._aborted, self._bases[0])]

    def replaced(self, number: int, end_offset: int) -> None:
        """Update after one closed segment, of this number, replaced all between its base offset and `end_offset`
        (exclusive)."""
        del self._newest[number:]
        self._closed_bytes = None
        if self._aborted is not None:
            first = bisect_left(self._aborted, self._bases[number])
            last = bisect_left(self._aborted, end_offset)
            self._aborted[first:last] = [self._bases[number]] if first < last else []

    def repaired(self) -> None:
        """Update after damaged batches were repaired: their timestamps may be newer than the known ones."""
        self._newest.clear()

    def record_aborted(self) -> None:
        """Record that the active segment has an aborted transaction."""
        if self._aborted is not None and self._bases[-1] not in self._aborted[-1:]:
            insort(self._aborted, self._bases[-1])

    def invalidate_aborted(self) -> None:
        """Recompute the aborted transactions at the next use: their indexes were rebuilt."""
        self._aborted = None

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        if self._closed_bytes is None:
            self._closed_bytes = sum(segment.size_bytes for segment in self._segments[:-1])
        return self._closed_bytes + self._segments[-1].size_bytes

    def newest(self) -> int | Segment:
        """The newest timestamp of the log, -1 if empty; or a segment whose indexes the caller must load first."""
        unread = self._read_newest(None)
        if unread is not None:
            return unread
        active = self._segments[-1]
        return max([*self._newest[-1:], active.indexes.max_timestamp_ms]) if active.indexes.newest_is_known else active

    def since(self, timestamp_ms: int, number: int) -> int | Segment | None:
        """Find the first segment from `number` on with a record at or after `timestamp_ms`.

        Returns:
            Its number; or a segment whose indexes the caller must load first; None if there is no such segment.
        """
        unread = self._read_newest(timestamp_ms)
        found = bisect_left(self._newest, timestamp_ms)
        if found == len(self._newest):
            if unread is not None:
                return unread
            number = max(number, found)
        elif found >= number:
            return found
        # The running maximum includes segments before `number`: compare each segment by itself.
        for each in range(number, len(self._segments)):
            segment = self._segments[each]
            if not segment.indexes.newest_is_known:
                return segment
            if segment.indexes.max_timestamp_ms >= timestamp_ms:
                return each
        return None

    def _read_newest(self, timestamp_ms: int | None) -> Segment | None:
        """Extend the newest timestamps up to a closed segment at or after `timestamp_ms` (None: to the last); returns a
        segment whose indexes must be loaded first."""
        newest = self._newest
        while len(newest) < len(self._segments) - 1:
            latest = newest[-1] if newest else NO_TIMESTAMP_MS
            if timestamp_ms is not None and newest and latest >= timestamp_ms:
                return None
            segment = self._segments[len(newest)]
            if not segment.indexes.newest_is_known:
                return segment
            newest.append(max(latest, segment.indexes.max_timestamp_ms))
        return None

    def with_aborted(self, disk: Disk, directory: Path, base_offset: int) -> Iterator[Segment]:
        """The segments from a base offset on that may have aborted transactions, in order. Raises OSError."""
        if self._aborted is None:
            # For a segment whose indexes are not loaded the file decides; most have none.
            unread = [segment for segment in self._segments if not segment.indexes.is_loaded]
            names = set(disk.list_dir(directory)) if unread else set()
            self._aborted = [
                segment.base_offset
                for segment in self._segments
                if segment.indexes.transactions.entries
                or segment.indexes.transactions_damaged
                or segment.indexes.transactions.path.name in names
            ]
        aborted = self._aborted
        for number in range(bisect_left(aborted, base_offset), len(aborted)):
            yield self._segments[bisect_left(self._bases, aborted[number])]

    def mark_undurable(self) -> None:
        """Count all segments as not durable."""
        self._flagged_from = 0

    def pop_undurable(self, recovery_point: int) -> list[Segment]:
        """Return the segments that may not be durable: all beyond the recovery point and all flagged ones. The caller
        flushes them and clears their flags."""
        first = min(bisect_right(self._bases, self._flagged_from), bisect_right(self._bases, recovery_point)) - 1
        self._flagged_from = self._bases[-1]
        return self._segments[max(0, first) :]
