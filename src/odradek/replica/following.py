"""A follower's handling of fetched data: it appends batches, or truncates its log where it diverges from the leader's.

Pure. At a divergence the leader returns its largest epoch that is not above the follower's last one, and the end offset
of that epoch. The leader never had the follower's records of later epochs; of that epoch the follower keeps the records
that both have. If the follower does not have that epoch, it keeps its next older one, and the next response shows
whether that was enough (KIP-279): several changes of leaders take several rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger
from odradek.common.ports import Buffer
from odradek.log.follower_append import append_as_follower
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.replica.failback import may_be_compacted

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.replica.partition import Partition

_log = get_logger("replica.following")


def append_from_leader(
    partition: Partition,
    records: Buffer,
    *,
    leader_epoch: int,
    high_watermark: int,
    log_start_offset: int,
    now_ms: int,
) -> None:
    """Append the leader's batches at the log end, and apply its high watermark and log start offset.

    Args:
        records: whole batches; an incomplete last one is ignored.
        high_watermark: the leader's; this replica's is never above its log end.
        log_start_offset: the leader's.
        now_ms: wall clock.
    Raises:
        ApiError: FENCED_LEADER_EPOCH if this replica no longer follows that leader; as `log.follower_append`.
        StorageError.
    """
    if not partition.follows(leader_epoch):
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH, f"{partition.name} has another leader than that of {leader_epoch}"
        )
    log = partition.log
    before = log.high_watermark
    if records:
        append_as_follower(partition.log, records, now_ms=now_ms, leader_epoch=leader_epoch)
    update_offsets_from_leader(partition, high_watermark, log_start_offset, len(records))
    after, end_offset = log.high_watermark, log.log_end_offset
    assert before <= after <= end_offset, f"{partition.name}: watermark {before} -> {after}, end {end_offset}"


def update_offsets_from_leader(
    partition: Partition, high_watermark: int, log_start_offset: int, gained_bytes: int
) -> None:
    """Apply the leader's offsets, bounded by the log end here, after the append."""
    log = partition.log
    watermark = min(high_watermark, log.log_end_offset)
    if watermark > log.high_watermark:
        partition.set_high_watermark(watermark, max(1, gained_bytes))
    if log_start_offset > log.log_start_offset:
        log.advance_log_start(min(log_start_offset, log.high_watermark))
    if partition.flush_is_due:
        partition.request_flush(partition)


def truncate_to_divergence(partition: Partition, leader_epoch: int, end_offset: int) -> None:
    """Truncate records that diverge from the leader, whose `leader_epoch` ends at `end_offset`.

    Raises:
        ApiError: as `truncation_offset`. StorageError.
    """
    offset = truncation_offset(partition.log, leader_epoch, end_offset)
    _truncate(partition, offset, f"epoch {leader_epoch} ends at {end_offset}")


def handle_out_of_range(partition: Partition, leader_start: int, leader_end: int) -> None:
    """The log end is not in the leader's log, [start, end): truncate to its end, or restart at its start.

    Raises:
        StorageError.
    """
    log = partition.log
    if partition.is_failing_back and leader_start == leader_end:
        # The leader's log is empty after a cut. Records below its start have epochs that it cannot compare.
        _restart_at(partition, leader_start, "the leader was cut to nothing")
    elif log.log_end_offset > leader_end:
        _truncate(partition, leader_end, "the leader's log ends there")
    elif log.log_end_offset < leader_start:
        _restart_at(partition, leader_start, "the leader's log begins there")


def _restart_at(partition: Partition, offset: int, reason: str) -> None:
    _log_truncation(partition, offset, reason)
    log = partition.log
    truncate_fully_and_start_at(log, offset)
    assert log.log_start_offset == log.log_end_offset == offset, f"{partition.name} begins at {offset}"
    partition.wake_readers()


def _truncate(partition: Partition, offset: int, reason: str) -> None:
    if partition.is_failing_back and may_be_compacted(partition.log):
        # Compaction may have removed records in favour of some that are truncated now: the leader has their values.
        _restart_at(partition, min(partition.log.log_start_offset, offset), f"{reason}, and it may be compacted beyond")
        return
    _log_truncation(partition, offset, reason)
    truncate_to(partition.log, offset)
    end_offset = partition.log.log_end_offset
    assert end_offset <= offset, f"{partition.name} is cut to {end_offset}, not {offset}"
    partition.wake_readers()


def truncation_offset(log: Log, leader_epoch: int, end_offset: int) -> int:
    """The log end (exclusive) to cut to.

    Args:
        leader_epoch, end_offset: the leader's largest epoch that is not above our last one, and its end (exclusive).
    Raises:
        ApiError: UNKNOWN_SERVER_ERROR where the leader names no end: nothing may be cut on that.
    """
    if end_offset < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"histories part at epoch {leader_epoch}, offset {end_offset}")
    own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
    if own_end < 0:
        return min(end_offset, log.log_end_offset)
    if own_epoch != leader_epoch:
        return min(own_end, log.log_end_offset)
    return min(own_end, end_offset, log.log_end_offset)


def _log_truncation(partition: Partition, offset: int, reason: str) -> None:
    """A log line before records are dropped: committed ones go only after an unclean election or a loss of power."""
    log = partition.log
    tell = _log.warning if offset < log.high_watermark else _log.info
    tell(
        "follower's log is cut",
        partition=partition.name,
        offset=offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        reason=reason,
    )
