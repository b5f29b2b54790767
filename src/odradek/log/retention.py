"""When a segment ends, and which segments may go: decided by records' own timestamps, by size, and by the log's start.

Only whole segments from the front go, and only below the high watermark. Ages are those of records, so a wall clock
that jumped back deletes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.log.config import LogConfig
from odradek.log.index import INDEX_ENTRY_BYTES
from odradek.log.segment import Segment
from odradek.record.batch import BatchHeader


def must_roll(
    segment: Segment, size_bytes: int, headers: Sequence[BatchHeader], config: LogConfig, *, jitter: float, now_ms: int
) -> bool:
    """Whether these batches begin a new segment; ages are those of records where the segment has any.

    Args:
        size_bytes: of all the batches.
        jitter: the log's share of segment.jitter.ms, 0 to 1.
    """
    if segment.would_overflow(headers[-1].last_offset):
        return True
    if segment.size_bytes == 0:
        return False
    if segment.size_bytes + size_bytes > config.segment_bytes:
        return True
    if segment.index_bytes + INDEX_ENTRY_BYTES > config.segment_index_bytes:
        return True
    first = segment.first_timestamp_ms()
    newest = max(headers[-1].max_timestamp, headers[0].max_timestamp)
    age = newest - first if first is not None and first >= 0 else now_ms - segment.created_ms
    roll_ms = config.roll_ms
    return age > roll_ms - int(jitter * min(config.segment_jitter_ms, roll_ms))


class Deletable(NamedTuple):
    """How many segments from the front may go; `unread` must be loaded before more is known."""

    segment_count: int
    unread: Segment | None = None


def count_deletable(
    segments: Sequence[Segment],
    ends: Sequence[int],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> Deletable:
    """How many segments from the front may be deleted.

    Args:
        ends: the offset behind each segment, exclusive.
        now_ms: wall clock.
    """
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, end in zip(segments, ends, strict=True):
        if end > high_watermark or segment.size_bytes == 0:
            break
        is_excess = config.deletes and config.retention_bytes >= 0 and excess >= segment.size_bytes
        if not (end <= log_start_offset or is_excess):
            if not config.deletes or config.retention_ms < 0:
                break
            if not segment.newest_is_known:
                return Deletable(count, segment)
            newest = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.created_ms
            if now_ms - newest <= config.retention_ms:
                break
        excess -= segment.size_bytes
        count += 1
    return Deletable(count)
