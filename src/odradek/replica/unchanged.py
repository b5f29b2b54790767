"""Partitions of a follower's fetch session that need no read, because the follower has all records.

Pure. A session may have a thousand partitions of which one has new records; reading all of them takes ten milliseconds
or more for each fetch of each follower. `is_unchanged` decides from offsets alone whether a read would return no
records, no error and no new offset; `refresh_caught_up_follower` whether the fetch acknowledges nothing new. Every
other partition is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.replica.partition import Partition


def is_unchanged(
    partition: Partition, leader_epoch: int, fetch_offset: int, sent_high_watermark: int, sent_log_start_offset: int
) -> bool:
    """Whether a follower that was caught up is still caught up, and got the current offsets.

    Within one leader epoch a leader's log only grows: a follower's log that agreed with it up to its end still agrees.

    Args:
        partition: the partition for which the logs were compared; it is closed if it was deleted since.
        leader_epoch: the epoch of the fetch, in which the logs were compared.
    """
    log = partition.log
    return (
        partition.leader_epoch == leader_epoch
        and fetch_offset == sent_high_watermark == log.log_end_offset == log.high_watermark
        and sent_log_start_offset == log.log_start_offset
        and partition.is_leader
    )


def refresh_caught_up_follower(
    partition: Partition, replica_id: int, *, fetch_offset: int, log_start_offset: int, now_ms: int, broker_epoch: int
) -> bool:
    """Do `followers.follower_fetched` for an unchanged partition, if only the time of the fetch must be recorded.

    This is so for an in-sync follower whose fetch offset is unchanged: the high watermark is at the log end, and the
    ISR does not grow. It takes 0.4 us instead of 1.5, for each of a thousand partitions in each fetch.

    Returns:
        False if more than the time changes; then nothing was done, and the caller calls `follower_fetched`.
    """
    follower = partition.in_sync.followers.get(replica_id)
    if follower is None or follower.log_end_offset != fetch_offset or replica_id not in partition.isr:
        return False
    follower.fetched(
        fetch_offset=fetch_offset,
        log_start_offset=log_start_offset,
        leader_end_offset=fetch_offset,
        now_ms=now_ms,
        broker_epoch=broker_epoch,
    )
    return True
