"""The metrics of replication, computed at the scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Sample
from odradek.replica.followers import is_at_min_isr, is_under_replicated

if TYPE_CHECKING:
    from odradek.replica.manager import ReplicaManager
    from odradek.replica.partition import Partition


def _name(partition: Partition) -> tuple[tuple[str, str], ...]:
    return ("topic", partition.topic), ("partition", str(partition.partition_id))


def replication_families(replicas: ReplicaManager) -> Iterator[Family]:
    """The metrics of leaders and followers on this broker."""
    leading = [partition for partition in replicas if partition.is_leader]
    lags = tuple(
        Sample(
            partition.log.log_end_offset - max(0, follower.log_end_offset),
            (*_name(partition), ("broker", str(broker_id))),
        )
        for partition in leading
        for broker_id, follower in sorted(partition.in_sync.followers.items())
    )
    counts = replicas.isr_counts
    yield Family.gauge(
        "odradek_partitions_under_replicated",
        "Partitions led here of which a replica is not in sync.",
        sum(is_under_replicated(partition) for partition in leading),
    )
    yield Family.gauge(
        "odradek_partitions_under_min_isr",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
        sum(partition.too_few_in_sync() for partition in leading),
    )
    yield Family.gauge(
        "odradek_partitions_at_min_isr",
        "Partitions led here with as many in-sync replicas as min.insync.replicas, and none to spare.",
        sum(is_at_min_isr(partition) for partition in leading),
    )
    yield Family.gauge(
        "odradek_partitions_offline", "Partitions of this broker whose log directory failed.", replicas.offline_count
    )
    yield Family.counter("odradek_isr_shrinks", "Shrinks of in-sync sets of partitions led here.", counts.shrinks)
    yield Family.counter(
        "odradek_isr_expansions", "Expansions of in-sync sets of partitions led here.", counts.expansions
    )
    yield Family("odradek_follower_lag_records", "gauge", "Records that a follower has not fetched.", lags)
    yield from _out_families(replicas, leading)
    fetchers = replicas.fetchers
    yield Family.gauge(
        "odradek_replica_max_lag_records",
        "Records that the follower here which is furthest behind lacks, up to its leader's high watermark.",
        max((each.lag or 0 for each in fetchers or ()), default=0),
    )
    yield Family.counter(
        "odradek_replica_fetched_bytes",
        "Bytes of record batches fetched from leaders.",
        0 if fetchers is None else fetchers.appended_bytes,
    )
    yield Family.counter(
        "odradek_replica_fetch_failures",
        "Times that a leader could not be reached, or did not answer.",
        0 if fetchers is None else fetchers.failed_count,
    )
    repairs = replicas.repair_counts
    yield Family.counter(
        "odradek_repaired_batches",
        "Batches that were damaged on disk and were fetched again from another replica.",
        0 if repairs is None else repairs.repaired_batches,
    )
    yield Family.counter(
        "odradek_repaired_bytes",
        "Bytes of batches that were fetched again from another replica.",
        0 if repairs is None else repairs.repaired_bytes,
    )
    yield Family.counter(
        "odradek_repair_failures",
        "Attempts to repair damaged batches for which no replica had the data.",
        0 if repairs is None else repairs.failures,
    )


def _out_families(replicas: ReplicaManager, leading: list[Partition]) -> Iterator[Family]:
    """The replicas that are not in sync, why, and since when."""
    out = [
        (removed, (*_name(partition), ("broker", str(broker_id)), ("reason", removed.reason)))
        for partition in leading
        for broker_id, removed in sorted(partition.in_sync.out().items())
    ]
    now_ms = replicas.monotonic_ms()
    yield Family(
        "odradek_follower_out_of_sync_seconds",
        "gauge",
        "For how long a follower has not been in sync, by reason: stuck, slow, fenced or new.",
        tuple(Sample(max(0, now_ms - removed.since_ms) / 1000, labels) for removed, labels in out),
    )
    yield Family(
        "odradek_follower_isr_removals",
        "gauge",
        "Times that this leader has removed a follower, now out of sync, from the ISR.",
        tuple(Sample(removed.removal_count, labels) for removed, labels in out),
    )
