"""Which segments may go: decided by records' own timestamps, by size, and by the log's start.

Only whole segments from the front go, and only below the high watermark. Ages are those of records, so a wall clock
that jumped back deletes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.log.config import LogConfig
from odradek.log.segment import Segment


def count_deletable(
    segments: Sequence[Segment],
    ends: Sequence[int],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
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
        if not (end <= log_start_offset or is_excess or _is_too_old(segment, config, now_ms)):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _is_too_old(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    if not config.deletes or config.retention_ms < 0:
        return False
    segment.load_indexes()
    newest = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.created_ms
    return now_ms - newest > config.retention_ms
