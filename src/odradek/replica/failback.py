"""Cuts the log of an old source's leader in a failback, and checks whether all replicas are cut (ADR 0021).

Nothing is appended to a partition in a failback: its log only becomes shorter. So any leader may repeat these steps at
any time.
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


def truncate_leader(partition: Partition, offset: int, *, starts_over: bool = False) -> bool:
    """Truncate the log to `offset` (the exclusive end), or begin there if its start is later.

    The state of followers is reset: until their next fetch, earlier responses may still be in flight.

    Args:
        starts_over: remove the whole log, and begin at `offset`.
    Returns:
        Whether the cut is done; False while a change of the in-sync set is in flight.
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
    """Whether compaction may have removed records of a log in favour of later ones.

    The cleaner writes the checkpoint with the partition before the first removal, and its progress after a cleaning.
    """
    return log.config.compacted or log.cleaned_offset > 0


@dataclass(slots=True)
class Below:
    """The result of a scan below an offset of a log.

    Attributes:
        end: the end of the scan (exclusive).
        has_gaps: offsets are missing, as in a compacted log: it may be a copy of another replica, or its checkpoint may
            be lost.
        open: producer id -> the first offset of its transaction without a marker.
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


def replicas_not_truncated(partition: Partition) -> list[int]:
    """The replicas without an accepted fetch since the cut of their leader."""
    return sorted(each for each, follower in partition.in_sync.followers.items() if follower.log_end_offset < 0)
