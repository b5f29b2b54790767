"""Computes which replicas are in sync, and the high watermark.

The leader's own log end counts like a follower's. The high watermark is the smallest log end of the *maximal* in-sync
set, which includes replicas that are being added, so that no change in flight can lose acknowledged records. It
advances only while the committed set has min.insync.replicas members (KIP-966). Source: Kafka
Partition.maybeIncrementLeaderHW, KIP-497, KIP-841.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class FollowerState:
    """The leader's state of one follower; unknown to a new leader.

    Attributes:
        log_end_offset: exclusive: its last fetch offset, or UNKNOWN_OFFSET.
        log_start_offset: inclusive, from its fetch.
        caught_up_ms: monotonic ms at which it last had all records of the leader.
        last_fetch_ms: monotonic ms of its last fetch, and
        leader_end_at_fetch: the leader's log end then.
        broker_epoch: of the registration in the fetch; -1 if it had none.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = -1
    last_fetch_ms: int = -1
    leader_end_at_fetch: int = 0
    broker_epoch: int = -1

    def fetched(
        self, *, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int, broker_epoch: int
    ) -> None:
        """Record a fetch at `fetch_offset`: the follower has all records below.

        It is caught up now if that is the leader's log end; it was at its last fetch if it has all records of then.
        """
        assert fetch_offset <= leader_end_offset, f"{fetch_offset} is asked of a log that ends at {leader_end_offset}"
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_fetch = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch


def high_watermark(
    *,
    current: int,
    leader_id: int,
    leader_end_offset: int,
    followers: Mapping[int, FollowerState],
    isr: Collection[int],
    maximal_isr: Collection[int],
    min_in_sync_replicas: int,
) -> int:
    """The high watermark (exclusive) by the states of the replicas; never below `current`.

    Only the committed in-sync set counts for `min_in_sync_replicas`: if a replica that is being added counted and was
    refused, a replica that left before could be elected without the records acknowledged meanwhile (KIP-966).
    """
    if len(isr) < min_in_sync_replicas:
        return current
    lowest = leader_end_offset
    for replica_id in maximal_isr:
        if replica_id == leader_id:
            continue
        follower = followers.get(replica_id)
        end = UNKNOWN_OFFSET if follower is None else follower.log_end_offset
        lowest = min(lowest, end)
    return max(current, lowest)


def effective_min_in_sync(min_in_sync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas, but never more than there are replicas (as Kafka caps it)."""
    return min(min_in_sync_replicas, replica_count)


def is_caught_up_to_leader(follower: FollowerState, *, leader_epoch_start: int, high_watermark: int) -> bool:
    """Whether a follower may enter the in-sync set: at the watermark, and past the start of the leader's epoch.

    The second keeps out one that still has an old leader's records above the watermark (KAFKA-7128).
    """
    return follower.log_end_offset >= max(high_watermark, leader_epoch_start)


def out_of_sync(
    *,
    isr: Collection[int],
    leader_id: int,
    leader_end_offset: int,
    followers: Mapping[int, FollowerState],
    now_ms: int,
    max_lag_ms: int,
) -> set[int]:
    """The in-sync followers that were not caught up for longer than `max_lag_ms` (replica.lag.time.max.ms)."""
    late = set()
    for replica_id in isr:
        if replica_id == leader_id:
            continue
        follower = followers.get(replica_id)
        if follower is None or (
            follower.log_end_offset != leader_end_offset and now_ms - follower.caught_up_ms > max_lag_ms
        ):
            late.add(replica_id)
    return late
