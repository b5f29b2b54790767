"""Where a follower cuts its log when its history is not its leader's.

Pure. The leader names the largest epoch of its own that is not above our last one, and where that ended. What we wrote
under later epochs it never had; of that epoch we keep as much as both have. Where we do not know that epoch either, all
of our next older one is kept, and the next answer tells whether that was enough (KIP-279): several changes of leaders
in a row take several rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger

if TYPE_CHECKING:
    from odradek.log.log import Log

_log = get_logger("replica.following")


def divergence_cut(log: Log, leader_epoch: int, end_offset: int) -> int:
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


def tell_of_cut(name: str, log: Log, offset: int, reason: str) -> None:
    """A log line before records are dropped: committed ones go only after an unclean election or a loss of power."""
    tell = _log.warning if offset < log.high_watermark else _log.info
    tell(
        "follower's log is cut",
        partition=name,
        offset=offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        reason=reason,
    )
