"""What is known of a log's segments together, so that no request looks at each of them: a log may have thousands.

All of it is found out when it is first asked for, and kept while the segments change. The lists are the log's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from pathlib import Path

from odradek.common.ports import Disk
from odradek.log.segment import Segment

# The newest timestamp of no records, as a segment has it.
NO_TIMESTAMP_MS = -1


class SegmentSummary:
    """Sums, newest timestamps and aborted transactions over the segments of one log; the last is the active one."""

    def __init__(self, segments: list[Segment], bases: list[int]) -> None:
        """`bases` are the segments' base offsets."""
        self._segments = segments
        self._bases = bases
        # The newest timestamp of the closed segments up to each, of the first so many.
        self._newest: list[int] = []
        self._closed_bytes: int | None = None
        # Base offsets of the segments that may have aborted transactions.
        self._aborted: list[int] | None = None
        # No segment that begins before has bytes or indexes of which its flags say that they are not durable.
        self._flagged_from = 0

    # -- changes ------------------------------------------------------------------------------------------------

    def rolled(self, closed: Segment) -> None:
        """The active segment was closed, and another one is active."""
        if self._closed_bytes is not None:
            self._closed_bytes += closed.size_bytes

    def cut(self) -> None:
        """Segments are gone from the end, or all were replaced by a new one."""
        del self._newest[len(self._segments) - 1 :]
        self._closed_bytes = None
        # Its files are not durable as they were cut, and it may be closed before the next flush.
        self._flagged_from = min(self._flagged_from, self._bases[-1])
        if self._aborted is not None:
            del self._aborted[bisect_right(self._aborted, self._bases[-1]) :]

    def dropped(self) -> None:
        """Segments are gone from the front."""
        self._newest.clear()
        self._closed_bytes = None
        if self._aborted is not None:
            del self._aborted[: bisect_left(self._aborted, self._bases[0])]

    def replaced(self, number: int, end_offset: int) -> None:
        """The closed segment of this number was put in the place of all that were between its base and `end_offset`,
        exclusive."""
        del self._newest[number:]
        self._closed_bytes = None
        if self._aborted is not None:
            first = bisect_left(self._aborted, self._bases[number])
            last = bisect_left(self._aborted, end_offset)
            self._aborted[first:last] = [self._bases[number]] if first < last else []

    def repaired(self) -> None:
        """Batches are there again that were damaged: a timestamp may be newer than what was known."""
        self._newest.clear()

    def note_aborted(self) -> None:
        """The active segment has another aborted transaction."""
        if self._aborted is not None and self._bases[-1] not in self._aborted[-1:]:
            insort(self._aborted, self._bases[-1])

    def forget_aborted(self) -> None:
        """The indexes of aborted transactions were rebuilt."""
        self._aborted = None

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        if self._closed_bytes is None:
            self._closed_bytes = sum(segment.size_bytes for segment in self._segments[:-1])
        return self._closed_bytes + self._segments[-1].size_bytes

    def newest(self) -> int | Segment:
        """The newest timestamp of all; a segment whose indexes must be read before it is known. -1 for none."""
        unread = self._look_at_newest(None)
        if unread is not None:
            return unread
        active = self._segments[-1]
        return max([*self._newest[-1:], active.indexes.max_timestamp_ms]) if active.indexes.newest_is_known else active

    def since(self, timestamp_ms: int, number: int) -> int | Segment | None:
        """The number of the first segment from `number` on with a record that is at least so new; a segment whose
        indexes must be read before that is known; None where there is none."""
        unread = self._look_at_newest(timestamp_ms)
        found = bisect_left(self._newest, timestamp_ms)
        if found == len(self._newest):
            if unread is not None:
                return unread
            number = max(number, found)
        elif found >= number:
            return found
        # Earlier ones are so new, and nothing of it may be read: that goes for the segment of the log start.
        for each in range(number, len(self._segments)):
            segment = self._segments[each]
            if not segment.indexes.newest_is_known:
                return segment
            if segment.indexes.max_timestamp_ms >= timestamp_ms:
                return each
        return None

    def _look_at_newest(self, timestamp_ms: int | None) -> Segment | None:
        """Go on until a closed segment is so new, None until all are known; returns one that must be read first."""
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
        """The segments from this base offset on that may have aborted transactions, in order; raises OSError."""
        if self._aborted is None:
            # A segment whose indexes were not read, or were let go, has what its file has; most have no file.
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

    def distrust(self) -> None:
        """Any segment may not be durable."""
        self._flagged_from = 0

    def take_undurable(self, recovery_point: int) -> list[Segment]:
        """Among these are all segments that reach beyond the recovery point, and all that flags say are not durable;
        the caller that takes them lowers the flags."""
        first = min(bisect_right(self._bases, self._flagged_from), bisect_right(self._bases, recovery_point)) - 1
        self._flagged_from = self._bases[-1]
        return self._segments[max(0, first) :]
