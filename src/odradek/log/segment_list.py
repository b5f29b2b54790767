"""The segments of one log, in order. All changes of the list are made here, and update the summary.

The last segment is the active one. Base offsets rise strictly; a segment ends at the base offset of the next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, overload

from odradek.log.compaction.output import CLEANED
from odradek.log.partition_dir import PartitionDir
from odradek.log.segment import Segment
from odradek.log.segment_holes import truncation_point
from odradek.log.segment_removal import mark_dropped
from odradek.log.segment_truncation import as_if_truncated_at, truncate_segment
from odradek.log.summary import SegmentSummary

T = TypeVar("T")

# Called with each segment that is removed; its files no longer belong to the log.
Drop = Callable[[Segment], None]


class SegmentList(Sequence[Segment]):
    """The segments of one log.

    Attributes:
        active: the last segment, which receives appends.
        bases: the base offsets, in order.
        summary: sums, newest timestamps and aborted transactions of all segments.
    """

    __slots__ = ("_dir", "_segments", "active", "bases", "summary")

    def __init__(self, partition_dir: PartitionDir, segments: list[Segment]) -> None:
        """`segments` are in order, at least one."""
        self._dir = partition_dir
        self._segments = segments
        self.bases = [segment.base_offset for segment in segments]
        assert all(base < following for base, following in pairwise(self.bases)), "base offsets rise strictly"
        self.active = segments[-1]
        self.summary = SegmentSummary(segments, self.bases)
        for segment in segments[:-1]:
            segment.indexes.is_sealed = True

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def index_of(self, offset: int) -> int:
        """The number of the segment that holds an offset; 0 for offsets before the first."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segments from the one that holds an offset."""
        for index in range(self.index_of(offset), len(self._segments)):
            yield self._segments[index]

    def end_of(self, segment: Segment, log_end_offset: int) -> int:
        """The offset (exclusive) at which a segment of this log ends."""
        if segment is self.active:
            return log_end_offset  # the most frequent case
        following = bisect_right(self.bases, segment.base_offset)
        return self.bases[following] if following < len(self.bases) else log_end_offset

    # -- changes ------------------------------------------------------------------------------------------------

    def roll(self, offset: int, now_ms: int) -> None:
        """Close the active segment and begin a new one at `offset`. Raises OSError."""
        closed = self.active
        assert offset > closed.base_offset, "base offsets rise strictly"
        segment = Segment(self._dir.files, self._dir.path, offset, created_ms=now_ms)
        segment.open(create=True)
        closed.seal()
        self._segments.append(segment)
        self.bases.append(offset)
        self.active = segment
        self.summary.rolled(closed)

    def truncate(self, offset: int, read: Callable[[list[Segment], int], T], drop: Drop) -> tuple[int, T]:
        """Truncate the log to `offset`, which is not before the first segment; durable on return.

        All files are opened before the first change: without free descriptors nothing is truncated.

        Args:
            read: called with the segments that remain, in their final state, and the log end offset.
        Returns:
            The new log end offset (exclusive), which is `offset` or, as `truncation_point` explains, below it; and the
                result of `read`.
        Raises:
            OSError: as `read`. Nothing has changed if no file could be opened.
        """
        kept = self._segments[: max(1, bisect_left(self.bases, offset))]
        active = kept[-1]
        position, end_offset = truncation_point(active, offset)
        active.indexes.load()
        found = as_if_truncated_at(active, position, lambda: read(kept, end_offset))
        held, directory = active.open_shared(), self._dir.files.disk.hold(self._dir.path)
        while len(self._segments) > len(kept):
            self.bases.pop()
            drop(self._segments.pop())
        self.active = active
        truncate_segment(active, position, end_offset, held)
        held.file.sync()
        directory.sync_dir(self._dir.path)
        self.summary.truncated()
        return end_offset, found

    def restart(self, offset: int, now_ms: int, drop: Drop, before: Callable[[], None]) -> None:
        """Remove all segments and begin an empty one at `offset`; durable on return.

        The last segment is removed first: after a crash the front of the log remains, from which a follower can
        continue.

        Args:
            before: called once all files are open.
        Raises:
            OSError: as `before`. Nothing has changed if no file could be opened.
        """
        disk, path = self._dir.files.disk, self._dir.path
        directory = disk.hold(path)
        fresh = Segment(self._dir.files, path, offset, created_ms=now_ms)
        begun = fresh.path.with_name(fresh.path.name + CLEANED)  # one of the old ones may have its name
        file = disk.open(begun, create=True)
        try:
            file.sync()
        finally:
            file.close()
        before()
        for segment in reversed(self._segments):
            drop(segment)
        disk.rename(begun, fresh.path)
        directory.sync_dir(path)
        self._segments[:], self.bases[:] = [fresh], [offset]
        self.active = fresh
        self.summary.truncated()

    def replace(
        self, old: Sequence[Segment], swap: Callable[[], tuple[Segment, list[Path]]]
    ) -> tuple[Segment, list[Path]] | None:
        """Replace closed segments by the one that `swap` returns; None, without a change, if they no longer exist.
        Raises OSError."""
        end = bisect_right(self.bases, old[-1].base_offset)
        first = end - len(old)
        if first < 0 or end == len(self._segments) or self._segments[first:end] != list(old):
            return None
        swapped = fresh, _ = swap()
        self._segments[first:end], self.bases[first:end] = [fresh], [fresh.base_offset]
        around = self.bases[max(0, first - 1) : first + 2]
        assert all(base < following for base, following in pairwise(around)), "base offsets rise strictly"
        self.summary.replaced(first, self.bases[first + 1])
        return swapped

    def drop_first(self, count: int) -> list[Segment]:
        """Remove closed segments from the front and return them; the caller renames their files."""
        assert count < len(self._segments), "the active segment stays"
        dropped = self._segments[:count]
        del self._segments[:count]
        del self.bases[:count]
        self.summary.dropped()
        for segment in dropped:
            mark_dropped(segment)
        return dropped

    # -- the directory ------------------------------------------------------------------------------------------

    def use_files(self) -> None:
        """Use the directory's new file cache."""
        for segment in self._segments:
            segment.use_files(self._dir.files)

    def moved(self) -> None:
        """Use the directory's new name."""
        for segment in self._segments:
            segment.moved_to(self._dir.path)
