"""The segments of one log, in order: every change of the list is made here, with what is known of all of them.

The last segment is the active one. Base offsets rise strictly; a segment ends where the next one begins.
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
from odradek.log.segment_cut import as_if_cut_at, truncate_segment
from odradek.log.segment_holes import cut_for
from odradek.log.segment_removal import forget
from odradek.log.summary import SegmentSummary

T = TypeVar("T")

# Called with each segment that is dropped; its files are then no longer the log's.
Drop = Callable[[Segment], None]


class SegmentList(Sequence[Segment]):
    """The segments of one log.

    Attributes:
        active: the last one, which is written to.
        bases: base offsets, in order.
        summary: sums, newest timestamps and aborted transactions over all.
    """

    __slots__ = ("_dir", "_segments", "active", "bases", "summary")

    def __init__(self, partition_dir: PartitionDir, segments: list[Segment]) -> None:
        """`segments` are in order, at least one."""
        self._dir = partition_dir
        self._segments = segments
        self.bases = [segment.base_offset for segment in segments]
        assert all(base < following for base, following in pairwise(self.bases)), "segments begin one behind another"
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
        """The number of the segment that an offset is in; the first one for offsets before it."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segments from the one that an offset is in."""
        for index in range(self.index_of(offset), len(self._segments)):
            yield self._segments[index]

    def end_of(self, segment: Segment, log_end_offset: int) -> int:
        """Where a segment of this log ends (exclusive offset)."""
        if segment is self.active:
            return log_end_offset  # of most questions
        following = bisect_right(self.bases, segment.base_offset)
        return self.bases[following] if following < len(self.bases) else log_end_offset

    # -- changes ------------------------------------------------------------------------------------------------

    def roll(self, offset: int, now_ms: int) -> None:
        """Close the active segment; a new one, which begins at `offset`, is active. Raises OSError."""
        closed = self.active
        assert offset > closed.base_offset, "segments begin one behind another"
        segment = Segment(self._dir.files, self._dir.path, offset, created_ms=now_ms)
        segment.open(create=True)
        closed.seal()
        self._segments.append(segment)
        self.bases.append(offset)
        self.active = segment
        self.summary.rolled(closed)

    def cut(self, offset: int, look: Callable[[list[Segment], int], T], drop: Drop) -> tuple[int, T]:
        """Drop all that lies at or above `offset`, which is not before the first segment; durable.

        Files are opened before anything is dropped: half a cut, for want of descriptors, is none.

        Args:
            look: called with the segments that stay, as they will be, and the log's end.
        Returns:
            Where the log ends (exclusive): at `offset`, or before it as `cut_for` says; and what `look` returned.
        Raises:
            OSError: as `look`. Nothing has changed where no file could be opened.
        """
        kept = self._segments[: max(1, bisect_left(self.bases, offset))]
        active = kept[-1]
        position, end_offset = cut_for(active, offset)
        active.indexes.load()
        found = as_if_cut_at(active, position, lambda: look(kept, end_offset))
        held, directory = active.open_shared(), self._dir.files.disk.hold(self._dir.path)
        while len(self._segments) > len(kept):
            self.bases.pop()
            drop(self._segments.pop())
        self.active = active
        truncate_segment(active, position, end_offset, held)
        held.file.sync()
        directory.sync_dir(self._dir.path)
        self.summary.cut()
        return end_offset, found

    def restart(self, offset: int, now_ms: int, drop: Drop, before: Callable[[], None]) -> None:
        """Drop all segments; an empty one begins at `offset`; durable.

        The last goes first: what a crash leaves is a front of the log, and not its end, that a leader is asked to go on
        from; or nothing.

        Args:
            before: called when all files are open.
        Raises:
            OSError: as `before`. Nothing has changed where no file could be opened.
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
        self.summary.cut()

    def replace(
        self, old: Sequence[Segment], swap: Callable[[], tuple[Segment, list[Path]]]
    ) -> tuple[Segment, list[Path]] | None:
        """Put what `swap` returns first in the place of several closed segments; None, and nothing is done, where they
        are gone. Raises OSError."""
        end = bisect_right(self.bases, old[-1].base_offset)
        first = end - len(old)
        if first < 0 or end == len(self._segments) or self._segments[first:end] != list(old):
            return None
        swapped = fresh, _ = swap()
        self._segments[first:end], self.bases[first:end] = [fresh], [fresh.base_offset]
        around = self.bases[max(0, first - 1) : first + 2]
        assert all(base < following for base, following in pairwise(around)), "segments begin one behind another"
        self.summary.replaced(first, self.bases[first + 1])
        return swapped

    def drop_first(self, count: int) -> list[Segment]:
        """Drop so many closed segments from the front, and return them; their files stay for the caller to rename."""
        assert count < len(self._segments), "the active segment stays"
        dropped = self._segments[:count]
        del self._segments[:count]
        del self.bases[:count]
        self.summary.dropped()
        for segment in dropped:
            forget(segment)
        return dropped

    # -- the directory ------------------------------------------------------------------------------------------

    def use_files(self) -> None:
        """The directory has other open files from now on."""
        for segment in self._segments:
            segment.use_files(self._dir.files)

    def moved(self) -> None:
        """The directory has another name."""
        for segment in self._segments:
            segment.moved_to(self._dir.path)
