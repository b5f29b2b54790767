"""Looking things up across a log's segments: offsets by time, aborted transactions by offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.log.index import AbortedTransaction
from odradek.log.segment import Segment
from odradek.log.transactions import rebuild_transactions
from odradek.record.reader import read_records


class FoundTimestamp(NamedTuple):
    """One record by its time; timestamp in ms since 1970 UTC."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_timestamp(segments: Sequence[Segment], timestamp_ms: int, log_start_offset: int) -> FoundTimestamp | None:
    """The first record at or behind the log start that is at least so new. Raises OSError."""
    for segment in segments:
        segment.load_indexes()
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        found = segment.locate(max(segment.times.offset_before(timestamp_ms), log_start_offset))
        for position, header in segment.headers(found[0]) if found else ():
            if header.max_timestamp < timestamp_ms:
                continue
            for record in read_records(segment.batch_bytes(position, header), header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
                    return FoundTimestamp(record.timestamp_ms, record.offset, header.partition_leader_epoch)
    return None


def newest_timestamp(segments: Sequence[Segment]) -> int:
    """The largest timestamp of all records; -1 where there is none. Raises OSError."""
    newest = -1
    for segment in segments:
        segment.load_indexes()
        newest = max(newest, segment.max_timestamp_ms)
    return newest


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
        entries = segment.transactions.entries
        found += [entry for entry in entries if entry.last_offset >= start_offset and entry.first_offset < end_offset]
        # Everything that begins before this one's stable offset has ended by now.
        if entries and entries[-1].last_stable_offset >= end_offset:
            break
    return sorted(found, key=lambda entry: entry.first_offset)
