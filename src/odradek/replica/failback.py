"""A leader of an old source is cut to what the new one has, and learns whether all replicas are (ADR 0021).

Nothing is appended to a partition that is failed back: its log gets shorter alone. So what is asked here may be asked
again by any leader, at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from odradek.common.log_lines import get_logger
from odradek.log.files import SharedFile, raw_batches
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.replica.partition import Partition

_log = get_logger("replica.failback")


def cut_leader(partition: Partition, offset: int, *, starts_over: bool = False) -> bool:
    """Drop all at or above `offset` (exclusive end), or begin there where the log begins later.

    What is known of followers is forgotten: until they ask again, they may still get what they were sent before.

    Args:
        starts_over: nothing of the log stays: it begins at `offset` again, wherever it ended.
    Returns:
        Whether it is done; False while a change of the in-sync set is in flight.
    Raises:
        StorageError.
    """
    if partition.in_sync.pending is not None:
        return False
    log = partition.log
    _log.warning(
        "log of an earlier source truncated",
        partition=partition.name,
        offset=offset,
        log_end_offset=log.log_end_offset,
        log_start_offset=log.log_start_offset,
    )
    if starts_over or offset <= log.log_start_offset:
        truncate_fully_and_start_at(log, offset)
    else:
        truncate_to(log, offset)
    partition.unreplicated.clear()
    partition.leader_epoch_start_offset = log.log_end_offset
    partition.in_sync.begin(partition.assigned_replicas, partition.isr, partition.monotonic_ms())
    partition.wake_readers()
    partition.advance_high_watermark()
    return True


def may_be_compacted(log: Log) -> bool:
    """Whether compaction may have dropped records of a log for the sake of later ones.

    That a cleaning drops something is in the checkpoint before it does; how far it came, once all of it is done.
    """
    return log.config.compacted or log.cleaned_offset > 0


@dataclass(slots=True)
class Below:
    """What lies below an offset of a log.

    Attributes:
        end: up to where (exclusive) it was looked at.
        has_gaps: records lack, as in a log that was compacted: it may have been copied from another replica, or its
            checkpoint may be lost.
        open: producer id -> where its transaction begins that has no end there.
    """

    end: int
    has_gaps: bool = False
    open: dict[int, int] = field(default_factory=dict)

    @property
    def first_open(self) -> int | None:
        return min(self.open.values(), default=None)


async def scan_below(log: Log, end_offset: int) -> Below:
    """Read all headers below an offset (exclusive), off the loop, up to the first gap. Raises StorageError."""
    below, disk = Below(log.log_start_offset), log.partition_dir.files.disk
    try:
        while below.end < end_offset and not below.has_gaps:
            below.end = max(below.end, log.log_start_offset)
            segment = next(log.segments.from_offset(below.end))
            held, position, end = segment.open_shared(), segment.position_of(below.end), segment.size_bytes
            segment_end = min(end_offset, log.segments.end_of(segment, log.log_end_offset))
            await disk.run_blocking(partial(_scan, below, held, position, end, segment_end))
    except OSError as error:
        raise log.partition_dir.failed(error) from error
    return below


def _scan(below: Below, held: SharedFile, position: int, end: int, end_offset: int) -> None:
    for _, header in raw_batches(held.file, position, end):
        if below.end >= end_offset:
            return
        begins_before = header.base_offset < below.end <= header.last_offset  # of a log whose start has moved into it
        is_whole = header.record_count == header.last_offset - header.base_offset + 1
        if not is_whole or (header.base_offset != below.end and not begins_before):
            break
        below.end = header.last_offset + 1
        if header.is_control:
            below.open.pop(header.producer_id, None)
        elif header.is_transactional:
            below.open.setdefault(header.producer_id, header.base_offset)
    below.has_gaps = below.end < end_offset


def replicas_not_cut(partition: Partition) -> list[int]:
    """Those whose end is not known since their leader was cut: none was accepted as they asked, if they did."""
    return sorted(each for each, follower in partition.in_sync.followers.items() if follower.log_end_offset < 0)
