"""Searches over the segments of a log: offsets by timestamp, aborted transactions by offset."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.common.ports import File
from odradek.log.index import AbortedTransaction
from odradek.log.segment import Segment
from odradek.log.segment_file import read_headers
from odradek.log.segment_indexes import SegmentIndexes
from odradek.log.segment_list import SegmentList
from odradek.log.transactions import rebuild_transactions
from odradek.record.batch import CREATE_TIME
from odradek.record.reader import outline_records, records_bytes

if TYPE_CHECKING:
    from odradek.log.log import Log


class FoundTimestamp(NamedTuple):
    """A record found by its timestamp, in ms since 1970 UTC."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimestampSearch:
    """The search for the first record at or after a timestamp, in steps that run off the loop.

        search = search_timestamp(log, timestamp_ms)
        while (work := search.next_step()) is not None:
            search.apply(await disk.off_loop(work))
        search.found

    A step reads the indexes or the batches of one segment from an open file. The log may change between steps: each
    step uses the present segments. Steps raise OSError, or ApiError for a batch that cannot be decoded
    (CORRUPT_MESSAGE) or decompresses to too many bytes (INVALID_RECORD).
    """

    def __init__(
        self,
        segments: SegmentList,
        timestamp_ms: int | None,
        log_start_offset: int,
        max_decompressed_bytes: int,
    ) -> None:
        """
        Args:
            segments: the log's segments.
            timestamp_ms: None for the record with the newest timestamp (KIP-734).
            max_decompressed_bytes: the limit for one batch.
        """
        self._segments = segments
        self._timestamp_ms = timestamp_ms
        self._log_start_offset = log_start_offset
        self._max_decompressed_bytes = max_decompressed_bytes
        self._from_offset = log_start_offset
        self._has_ended = False
        self._loading: Segment | None = None
        self.found: FoundTimestamp | None = None

    def next_step(self) -> Callable[[], SegmentIndexes | FoundTimestamp | None] | None:
        """The next work to run off the loop; None when the search has ended."""
        if self._timestamp_ms is None:
            newest = self._segments.summary.newest()
            if isinstance(newest, Segment):
                return self._load(newest)
            self._timestamp_ms, self._has_ended = newest, newest < 0
        while self.found is None and not self._has_ended:
            number = self._segments.index_of(self._from_offset)
            where = self._segments.summary.since(self._timestamp_ms, number)
            if where is None:
                break
            segment = where if isinstance(where, Segment) else self._segments[where]
            load = self._load(segment)
            if load is not None:
                return load
            assert isinstance(where, int), "an unloaded segment can be loaded"
            if where + 1 < len(self._segments):
                self._from_offset = self._segments.bases[where + 1]
            else:
                self._has_ended = True
            step = self._step_in(segment)
            if step is not None:
                return step
        return None

    def _load(self, segment: Segment) -> Callable[[], SegmentIndexes | None] | None:
        """Return work that loads the indexes of a segment; None if they are loaded."""
        load = segment.indexes.begin_load()
        if load is None:
            return None
        self._loading = segment
        return _if_exists(load)

    def _step_in(self, segment: Segment) -> Callable[[], FoundTimestamp | None] | None:
        timestamp_ms, start = self._timestamp_ms or 0, self._log_start_offset
        found = segment.locate(max(segment.indexes.offset_before(timestamp_ms), start))
        if found is None:
            return None
        held, end, base = segment.open_shared(), segment.size_bytes, segment.base_offset
        limit = self._max_decompressed_bytes
        return lambda: _first_in(held.file, found[0], end, base, timestamp_ms, start, limit)

    def apply(self, result: SegmentIndexes | FoundTimestamp | None) -> None:
        """Apply the result of a step."""
        loading, self._loading = self._loading, None
        if loading is None:
            assert not isinstance(result, SegmentIndexes)
            self.found = result
        elif isinstance(result, SegmentIndexes):
            loading.indexes.install_indexes(result)
        elif not loading.batches.is_dropped:
            raise FileNotFoundError(errno.ENOENT, "a segment was removed", str(loading.path))

    def run(self) -> FoundTimestamp | None:
        """Run the whole search. Blocks. For tools and tests."""
        while (work := self.next_step()) is not None:
            self.apply(work())
        return self.found


def search_timestamp(log: Log, timestamp_ms: int | None) -> TimestampSearch:
    """The search for the first record at or after a timestamp; None for the newest timestamp (KIP-734)."""
    limit = log.config.batch_rules().max_decompressed_bytes
    return TimestampSearch(log.segments, timestamp_ms, log.log_start_offset, limit)


# The most transaction markers that are skipped.
_MAX_MARKERS = 1000


def first_record_ms(log: Log, offset: int, end_offset: int) -> int | None:
    """The timestamp of the first record from an offset on, from the header of its batch; transaction markers are
    skipped. None if there is none below `end_offset`. Raises OSError.

    If the batch begins before the offset, this is the batch's newest timestamp: records are not decoded.
    """
    offset = max(offset, log.log_start_offset)
    if offset >= end_offset:
        return None
    looked_at = 0
    for segment in log.segments.from_offset(offset):
        found = segment.locate(offset)
        for _, header in () if found is None else segment.headers(found[0]):
            looked_at += 1
            if header.base_offset >= end_offset or looked_at > _MAX_MARKERS:
                return None
            if not header.is_control:
                is_first = header.base_offset >= offset and header.timestamp_type == CREATE_TIME
                return header.base_timestamp if is_first and not header.has_delete_horizon else header.max_timestamp
    return None


def _if_exists(load: Callable[[], SegmentIndexes]) -> Callable[[], SegmentIndexes | None]:
    def work() -> SegmentIndexes | None:
        try:
            return load()
        except FileNotFoundError:
            return None  # retention has removed the segment, or the files are missing: `take` decides

    return work


def _first_in(
    file: File,
    position: int,
    end: int,
    segment_offset: int,
    timestamp_ms: int,
    log_start_offset: int,
    max_decompressed_bytes: int,
) -> FoundTimestamp | None:
    for at, header in read_headers(file, position, end, segment_offset):
        if header.max_timestamp < timestamp_ms:
            continue
        batch = file.read_at(at, header.size_bytes)
        for record in outline_records(records_bytes(batch, header, max_output_bytes=max_decompressed_bytes), header):
            if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
                return FoundTimestamp(record.timestamp_ms, record.offset, header.partition_leader_epoch)
    return None


def collect_aborted(segment: Segment, start_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
    """Add the aborted transactions of a segment with loaded indexes that have records in [start, end). Returns whether
    later segments have none: all transactions that began before the last stable offset have ended."""
    entries = segment.indexes.transactions.entries
    found += [entry for entry in entries if entry.last_offset >= start_offset and entry.first_offset < end_offset]
    return bool(entries) and entries[-1].last_stable_offset >= end_offset


def aborted_transactions(log: Log, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that have records in [start, end), by first offset. Raises OSError."""
    found: list[AbortedTransaction] = []
    segments = log.segments
    first = segments.bases[segments.index_of(start_offset)]
    for segment in segments.summary.with_aborted(log.partition_dir.files.disk, log.directory, first):
        segment.indexes.load()
        if segment.indexes.transactions_damaged:
            # Its rebuild needs the earlier segments: rebuild all, and search again.
            rebuild_transactions(segments)
            segments.summary.invalidate_aborted()
            return aborted_transactions(log, start_offset, end_offset)
        if collect_aborted(segment, start_offset, end_offset, found):
            break
    return sorted(found, key=lambda entry: entry.first_offset)
