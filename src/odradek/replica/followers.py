"""The followers of a partition at their leader: fetches, changes of the in-sync set, preferred read replicas.

`in_sync` decides from the state of each follower; this module adds the partition's log and epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger
from odradek.replica.in_sync import IsrChange, Outcome
from odradek.replica.isr import effective_min_in_sync
from odradek.replica.selector import Candidate, Selector

if TYPE_CHECKING:
    from odradek.replica.partition import Partition

_log = get_logger("replica.followers")


def follower_fetched(
    partition: Partition,
    replica_id: int,
    *,
    fetch_offset: int,
    log_start_offset: int,
    now_ms: int,
    broker_epoch: int,
    last_fetched_epoch: int = -1,
    current_leader_epoch: int = -1,
) -> None:
    """Handle a follower's fetch at `fetch_offset`: it has all records below, so high watermark and ISR may change.

    This counts only if the follower's log agrees with this one up to there, and the offset is in this log.

    Args:
        now_ms: monotonic.
    Raises:
        ApiError: UNKNOWN_LEADER_EPOCH if it is not among the known replicas, or NOT_LEADER_OR_FOLLOWER if it sent no
            leader epoch, or has restarted since; OFFSET_OUT_OF_RANGE as `Partition.diverges`.
    """
    check_replica(partition, replica_id, current_leader_epoch)
    in_sync, log = partition.in_sync, partition.log
    if partition.diverges(fetch_offset, last_fetched_epoch) is not None:
        return
    if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
        return
    in_sync.followers[replica_id].fetched(
        fetch_offset=fetch_offset,
        log_start_offset=log_start_offset,
        leader_end_offset=log.log_end_offset,
        now_ms=now_ms,
        broker_epoch=broker_epoch,
    )
    if replica_id not in partition.isr and in_sync.pending is None:
        change = in_sync.maybe_expand(
            replica_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_epoch_start=partition.leader_epoch_start_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
            is_isr_eligible=partition.is_isr_eligible,
        )
        if change is not None:
            partition.request_isr(partition)
    partition.advance_high_watermark()


def check_replica(partition: Partition, replica_id: int, current_leader_epoch: int) -> None:
    """Raises as `follower_fetched` if that broker is no replica."""
    if replica_id not in partition.in_sync.followers:
        # A broker with our leader epoch has a newer set of replicas than we do: it retries.
        is_ahead = current_leader_epoch >= 0
        code = ErrorCode.UNKNOWN_LEADER_EPOCH if is_ahead else ErrorCode.NOT_LEADER_OR_FOLLOWER
        raise ApiError(code, f"{replica_id} is not a replica of {partition.name}")


def maybe_shrink(partition: Partition, *, now_ms: int, max_lag_ms: int) -> IsrChange | None:
    """Request an in-sync set without the followers that were not caught up for `max_lag_ms`; None if all are."""
    if not partition.is_leader:
        return None
    change = partition.in_sync.maybe_shrink(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        leader_end_offset=partition.log.log_end_offset,
        now_ms=now_ms,
        max_lag_ms=max_lag_ms,
    )
    if change is not None:
        partition.request_isr(partition)
    return change


def handle_alter_partition(
    partition: Partition,
    change: IsrChange,
    outcome: Outcome,
    *,
    isr: tuple[int, ...],
    partition_epoch: int,
    now_ms: int,
) -> None:
    """The controller has decided on a change; newer metadata may have overtaken the answer, and then it is void.

    Args:
        isr, partition_epoch: as the controller has them, where `outcome` is DONE.
    """
    in_sync = partition.in_sync
    if in_sync.pending is not change or not partition.is_leader:
        return
    if outcome is Outcome.REFUSED:
        in_sync.change_rejected(now_ms)
    elif outcome is Outcome.DONE and partition_epoch >= partition.partition_epoch:
        partition.partition_epoch, partition.isr = partition_epoch, isr
        in_sync.commit(partition.assigned_replicas, isr, now_ms)
    partition.advance_high_watermark()


def preferred_read_replica(
    partition: Partition, select: Selector, rack: str, fetch_offset: int, rack_of: Callable[[int], str | None]
) -> int | None:
    """The replica that a consumer in `rack` should read `fetch_offset` from; None for this one (KIP-392)."""
    broker_id = partition.broker_id
    candidates = [Candidate(broker_id, rack_of(broker_id), partition.log.log_end_offset, True)]
    for replica_id, follower in partition.in_sync.followers.items():
        if replica_id in partition.isr and follower.log_start_offset <= fetch_offset <= follower.log_end_offset:
            candidates.append(Candidate(replica_id, rack_of(replica_id), follower.log_end_offset, False))
    chosen = select(rack, candidates)
    return None if chosen == broker_id else chosen


def is_under_replicated(partition: Partition) -> bool:
    """Whether a replica is not in sync, seen by the leader."""
    return partition.is_leader and len(partition.isr) < len(partition.assigned_replicas)


def is_at_min_isr(partition: Partition) -> bool:
    """Whether writing with acks=all fails when one more replica falls out, seen by the leader."""
    least = effective_min_in_sync(partition.min_in_sync_replicas, len(partition.assigned_replicas))
    return partition.is_leader and len(partition.isr) == least


def warn_too_few_in_sync(partition: Partition, code: ErrorCode) -> None:
    """Log the brokers that are out of the in-sync set, with reason and time; one line for each state of the set."""
    if partition.warned_epoch != partition.partition_epoch:
        partition.warned_epoch = partition.partition_epoch
        out = partition.in_sync.describe_out_of_sync(partition.monotonic_ms())
        _log.warning(
            code.name,
            partition=partition.name,
            min_insync_replicas=partition.min_in_sync_replicas,
            isr=list(partition.isr),
            out=out,
        )
