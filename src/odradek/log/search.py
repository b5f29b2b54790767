"""Looking things up across a log's segments: offsets by time, aborted transactions by offset."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.common.ports import File
from odradek.log.index import AbortedTransaction
from odradek.log.segment import Segment, read_headers
from odradek.log.transactions import rebuild_transactions
from odradek.record.reader import read_records


class FoundTimestamp(NamedTuple):
    """One record by its time; timestamp in ms since 1970 UTC."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimestampSearch:
    """The search for the first record of a log that is at least so new, in steps that are worked off the loop.

        search = log.search_timestamp(timestamp_ms)
        while (work := search.next_step()) is not None:
            search.take(await disk.off_loop(work))
        search.found

    A step reads the indexes of one segment, or the batches of one, out of a file that is held open: what happens to the
    log meanwhile does not matter. Steps raise OSError, or ApiError(CORRUPT_MESSAGE) for a batch that cannot be read.
    """

    def __init__(self, segments: Sequence[Segment], timestamp_ms: int | None, log_start_offset: int) -> None:
        """
        Args:
            segments: those of the log as they are now.
            timestamp_ms: None for the newest record of all (KIP-734).
        """
        self._segments = list(segments)
        self._timestamp_ms = timestamp_ms
        self._log_start_offset = log_start_offset
        self._next = 0
        self._loading: Segment | None = None
        self.found: FoundTimestamp | None = None

    def next_step(self) -> Callable[[], Segment | FoundTimestamp | None] | None:
        """What to do next off the loop; None when the search has ended."""
        if self.found is not None:
            return None
        if any(segment.replaced_by is not None for segment in self._segments):
            self._follow_swaps()
        while self._next < len(self._segments):
            segment = self._segments[self._next]
            if segment.is_dropped:
                self._next += 1
                continue
            seeks_newest = self._timestamp_ms is None
            load = segment.begin_load(newest_only=True)
            if load is None and not seeks_newest and segment.max_timestamp_ms >= (self._timestamp_ms or 0):
                load = segment.begin_load()
            if load is not None:
                self._loading = segment
                return _unless_gone(load)
            self._next += 1
            if not seeks_newest and segment.max_timestamp_ms >= (self._timestamp_ms or 0):
                step = self._step_in(segment)
                if step is not None:
                    return step
        if self._timestamp_ms is not None:
            return None
        newest = max((each.max_timestamp_ms for each in self._segments if not each.is_dropped), default=-1)
        self._timestamp_ms, self._next = newest, 0
        return self.next_step() if newest >= 0 else None

    def _follow_swaps(self) -> None:
        """Compaction put new segments in the place of some: begin again over those."""
        segments: list[Segment] = []
        for segment in self._segments:
            while segment.replaced_by is not None:
                segment = segment.replaced_by
            if not segments or segments[-1] is not segment:
                segments.append(segment)
        self._segments, self._next = segments, 0

    def _step_in(self, segment: Segment) -> Callable[[], FoundTimestamp | None] | None:
        timestamp_ms, start = self._timestamp_ms or 0, self._log_start_offset
        found = segment.locate(max(segment.offset_before(timestamp_ms), start))
        if found is None:
            return None
        held, end, base = segment.hold(), segment.size_bytes, segment.base_offset
        return lambda: _first_in(held.file, found[0], end, base, timestamp_ms, start)

    def take(self, result: Segment | FoundTimestamp | None) -> None:
        """What the step came to."""
        loading, self._loading = self._loading, None
        if loading is None:
            assert not isinstance(result, Segment)
            self.found = result
        elif isinstance(result, Segment):
            loading.adopt(result)
        elif not loading.is_dropped:
            raise FileNotFoundError(errno.ENOENT, "a segment is gone", str(loading.path))

    def run(self) -> FoundTimestamp | None:
        """The whole search at once; blocks. For tools and tests."""
        while (work := self.next_step()) is not None:
            self.take(work())
        return self.found


def _unless_gone(load: Callable[[], Segment]) -> Callable[[], Segment | None]:
    def work() -> Segment | None:
        try:
            return load()
        except FileNotFoundError:
            return None  # retention was faster, or the files are really missing: `take` knows

    return work


def _first_in(
    file: File, position: int, end: int, segment_offset: int, timestamp_ms: int, log_start_offset: int
) -> FoundTimestamp | None:
    for at, header in read_headers(file, position, end, segment_offset):
        if header.max_timestamp < timestamp_ms:
            continue
        for record in read_records(file.read_at(at, header.size_bytes), header):
            if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
                return FoundTimestamp(record.timestamp_ms, record.offset, header.partition_leader_epoch)
    return None


def find_aborted(
    segments: Sequence[Segment], first: int, start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that have records in [start, end), by first offset.

    Args:
        first: the number of the segment that holds `start_offset`.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[first:]:
        segment.load_indexes()
        if segment.transactions_damaged:
            rebuild_transactions(segments)
            segment.load_indexes()
        entries = segment.transactions.entries
        found += [entry for entry in entries if entry.last_offset >= start_offset and entry.first_offset < end_offset]
        # Everything that begins before this one's stable offset has ended by now.
        if entries and entries[-1].last_stable_offset >= end_offset:
            break
    return sorted(found, key=lambda entry: entry.first_offset)
