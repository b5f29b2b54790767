"""One cleaning over the files of one log: read the keys of its dirty part, then rewrite its segments, in groups.

This runs in a worker, off the event loop, on files that no longer change: closed segments, all durable. It makes files
with `.cleaned` names and nothing else; the log's owner puts them in place, or removes them. Groups are cleaned
from the log's front on, so that at any moment what was dropped is older than what replaces it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Disk, Pause
from odradek.log.compaction.batches import Batch, BatchCleaner, LastOfProducer
from odradek.log.compaction.keys import OffsetMap
from odradek.log.compaction.output import CleanedSegment
from odradek.log.compaction.transactions import AbortedData
from odradek.log.files import FileCache
from odradek.log.index import AbortedTransaction, CorruptIndexError, TransactionIndex
from odradek.log.segment import Segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET, segment_path
from odradek.log.verification import Damage, check_batches
from odradek.record.batch import BatchHeader

# The event loop renames the files of a group, in some microseconds each.
MAX_GROUP_SEGMENTS = 64


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """A closed segment: its base offset, its end offset (exclusive), and the size of its `.log` file."""

    base_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """The input of one cleaning; plain values, because another process may run it.

    Attributes:
        segments: from the log's first one to the last that may be cleaned.
        first_dirty_offset: inclusive.
        aborted: the aborted transactions whose marker is behind these segments.
        producers: see `BatchCleaner`.
        table_bytes: the memory for keys; see `OffsetMap`.
        read_bytes: the size of a read.
    """

    directory: Path
    segments: tuple[SegmentPlan, ...]
    first_dirty_offset: int
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    table_bytes: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class BuiltOffsetMap:
    """The result of the first pass.

    Attributes:
        end_offset: the end (exclusive) of the cleaning, below the planned one if the offset map was full.
        groups: how many segments each new segment replaces, in order.
        table_bytes: the estimated memory of the keys.
    """

    end_offset: int
    groups: tuple[int, ...]
    record_count: int
    read_bytes: int
    table_bytes: int


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """The result of one group; if nothing has changed, nothing was written."""

    base_offset: int
    is_changed: bool
    read_bytes: int
    written_bytes: int
    records_before: int
    records_after: int


def group_segments(
    segments: Sequence[SegmentPlan],
    end_offset: int,
    *,
    segment_bytes: int,
    segment_index_bytes: int,
    index_bytes: Callable[[SegmentPlan], int],
) -> list[int]:
    """The numbers of segments that are merged into one each; segments at or behind `end_offset` are not included.

    The size and indexes of a group are within the limits of a segment, and its offsets within 31 bits.

    Args:
        index_bytes: returns the size of the larger index of a segment.
    """
    groups: list[int] = []
    base = size = indexes = 0
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        size += segment.size_bytes
        added = index_bytes(segment)
        indexes += added
        is_joined = (
            groups and groups[-1] < MAX_GROUP_SEGMENTS and size <= segment_bytes and indexes <= segment_index_bytes
        )
        if is_joined and segment.end_offset - 1 - base <= MAX_RELATIVE_OFFSET:
            groups[-1] += 1
            continue
        groups.append(1)
        base, size, indexes = segment.base_offset, segment.size_bytes, added
    return groups


class Cleaning:
    """Runs a plan: first `build_offset_map()`, then `clean(n)` for each group in order.

    Raises:
        ApiError: CORRUPT_MESSAGE, a batch is damaged; KAFKA_STORAGE_ERROR, the disk is full.
        StorageError, OSError: the disk failed, or a file was removed.
    """

    def __init__(self, disk: Disk, plan: CleaningPlan, pause: Pause = lambda size: None) -> None:
        """`pause` is called with the number of bytes read or written, and may block."""
        self._disk = disk
        self._plan = plan
        self._pause = pause
        self._files = FileCache(disk, capacity=8)
        self._indexed = {segment.base_offset: self._aborted_in(segment) for segment in plan.segments}
        aborted = [entry for entries in self._indexed.values() for entry in entries]
        self._table = OffsetMap(plan.table_bytes)
        self._cleaner = BatchCleaner(
            self._table,
            AbortedData([*aborted, *plan.aborted]),
            first_dirty_offset=plan.first_dirty_offset,
            producers=plan.producers,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.delete_retention_ms,
        )
        self._groups: list[tuple[SegmentPlan, ...]] = []

    def answer(self, group: int | None) -> BuiltOffsetMap | CleanedGroup:
        """Handle one call to the worker: None builds the offset map, a number cleans that group."""
        return self.build_offset_map() if group is None else self.clean(group)

    def _aborted_in(self, segment: SegmentPlan) -> list[AbortedTransaction]:
        index = TransactionIndex(self._disk, segment_path(self._plan.directory, segment.base_offset, ".txnindex"))
        try:
            index.load()
        except (CorruptIndexError, struct.error) as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{index.path}: {error}") from None
        return index.entries

    def _index_bytes(self, segment: SegmentPlan) -> int:
        paths = [segment_path(self._plan.directory, segment.base_offset, suffix) for suffix in (".index", ".timeindex")]
        return max(self._disk.size(path) if self._disk.exists(path) else 0 for path in paths)

    def build_offset_map(self) -> BuiltOffsetMap:
        """Read the keys of the dirty part into the offset map, up to its capacity."""
        plan, cleaner = self._plan, self._cleaner
        read = 0
        for segment_plan in plan.segments:
            if segment_plan.end_offset <= plan.first_dirty_offset:
                continue
            start = self._open(segment_plan).locate(plan.first_dirty_offset)
            is_full = False
            for _, header, batch in self._batches(segment_plan, start[0] if start else segment_plan.size_bytes):
                read += len(batch)
                if not cleaner.add_keys(header, batch):
                    is_full = True
                    break
            if is_full:
                break
            # A gap may follow, up to the next segment.
            cleaner.end_offset = segment_plan.end_offset
        counts = group_segments(
            plan.segments,
            cleaner.end_offset,
            segment_bytes=plan.segment_bytes,
            segment_index_bytes=plan.segment_index_bytes,
            index_bytes=self._index_bytes,
        )
        first = 0
        for count in counts:
            self._groups.append(plan.segments[first : first + count])
            first += count
        return BuiltOffsetMap(cleaner.end_offset, tuple(counts), len(self._table.marks), read, self._table.used_bytes)

    def clean(self, group: int) -> CleanedGroup:
        """Write the new segment of a group, durably, with temporary names; writes nothing if a single segment is
        unchanged."""
        segments = self._groups[group]
        writer = _GroupWriter(self, self._plan, segments)
        read = before = after = 0
        for segment in segments:
            for position, header, batch in self._batches(segment, 0):
                is_end = segment is segments[-1] and position + len(batch) == segment.size_bytes
                kept = self._cleaner.clean(header, batch, keep_empty=is_end)
                read += len(batch)
                before += header.record_count
                if kept is batch:
                    after += header.record_count
                    writer.append(header, batch, position)
                elif kept is None:
                    writer.change(position)
                else:
                    changed = BatchHeader.read(kept)
                    after += changed.record_count
                    writer.change(position)
                    writer.append(changed, kept, position)
        entries = [entry for segment in segments for entry in self._indexed[segment.base_offset]]
        written = writer.finish(self._cleaner.transactions.retained_entries(entries))
        return CleanedGroup(segments[0].base_offset, written > 0, read, written, before, after)

    def _open(self, plan: SegmentPlan) -> Segment:
        segment = Segment(self._files, self._plan.directory, plan.base_offset, created_ms=0)
        segment.open()
        if segment.size_bytes != plan.size_bytes:
            raise FileNotFoundError(f"{segment.path} has {segment.size_bytes} bytes, not {plan.size_bytes}")
        return segment

    def _batches(self, plan: SegmentPlan, position: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
        segment = self._open(plan)
        window = max(self._plan.read_bytes, 1)
        unpaused = 0
        for found in check_batches(segment, position=position, expected_offset=plan.base_offset, read_bytes=window):
            if isinstance(found, Damage):
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: damaged at position {found.position}: {found.reason}"
                )
            unpaused += len(found[2])
            if unpaused >= window:
                self._pause(unpaused)
                unpaused = 0
            yield found
        self._pause(unpaused)

    def new_segment(self, base_offset: int) -> CleanedSegment:
        """Begin a new segment."""
        return CleanedSegment(
            self._files, self._plan.directory, base_offset, index_interval_bytes=self._plan.index_interval_bytes
        )

    def copy_front(self, plan: SegmentPlan, end_position: int, into: CleanedSegment) -> None:
        """Copy the batches before a position (exclusive) unchanged."""
        for position, header, batch in self._batches(plan, 0):
            if position >= end_position:
                break
            into.add(header, batch)

    def pause(self, size_bytes: int) -> None:
        """Count written bytes for the pace."""
        self._pause(size_bytes)


def start_cleaning(
    disk: Disk, pause: Pause, plan: CleaningPlan
) -> Callable[[int | None], BuiltOffsetMap | CleanedGroup]:
    """The function with which a worker is started."""
    return Cleaning(disk, plan, pause).answer


class _GroupWriter:
    """Writes the new segment from the first batch that changes; a segment without a change is not written."""

    def __init__(self, cleaning: Cleaning, plan: CleaningPlan, segments: Sequence[SegmentPlan]) -> None:
        self._cleaning = cleaning
        self._segments = segments
        self._new = cleaning.new_segment(segments[0].base_offset) if len(segments) > 1 else None

    def change(self, position: int) -> None:
        """The batch at `position` is removed or replaced."""
        if self._new is None:
            self._new = self._cleaning.new_segment(self._segments[0].base_offset)
            self._cleaning.copy_front(self._segments[0], position, self._new)

    def append(self, header: BatchHeader, batch: Batch, position: int) -> None:
        if self._new is not None:
            self._new.add(header, batch)
            self._cleaning.pause(len(batch))

    def finish(self, aborted: Sequence[AbortedTransaction]) -> int:
        """Returns the bytes written; 0 if nothing has changed."""
        return 0 if self._new is None else self._new.finish(aborted)
