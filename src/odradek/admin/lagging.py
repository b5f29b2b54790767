"""Replicas that are not in sync, and the reasons, found with the APIs of any Kafka cluster.

- fenced: the controller has fenced the broker: its process has ended, or its session has expired.
- silent: the broker does not respond: it is paused, or its machine cannot be reached.
- slow: the replica fetches, and has not caught up yet.
- stuck: the broker responds and the replica does not fetch: it may not reach the leader; its log has the reason.

Only the leader knows since when, and how often the replica left the ISR: see its log, and its metrics
`odradek_follower_out_of_sync_seconds` and `odradek_follower_isr_removals`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.client.admin import describe_cluster
from odradek.client.cluster import partitions_of
from odradek.client.reassignment import replica_sizes
from odradek.common.topic_names import TopicPartition

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.protocol.messages.metadata_response import MetadataResponsePartition

# The time between two samples of sizes, and the timeout of a broker.
LOOK_APART_S = 1.0
ANSWER_WITHIN_S = 3.0

Sizes = dict[tuple[TopicPartition, int], int]


async def lagging_replicas(cluster: Cluster) -> list[dict[str, Any]]:
    """A row for each replica that is not in sync, in order. Raises ApiError."""
    missing = _out_of_sync(partitions_of((await cluster.metadata()).topics))
    if not missing:
        return []
    brokers = (await describe_cluster(cluster, fenced=True)).brokers
    awake = {broker.broker_id for broker in brokers if not broker.is_fenced}
    asked = {broker_id for partition, out in missing.values() for broker_id in (partition.leader_id, *out)} & awake
    before = await _sizes(cluster, asked, missing)
    await asyncio.sleep(LOOK_APART_S)
    after = await _sizes(cluster, asked, missing)
    rows = []
    for key, (partition, out) in sorted(missing.items()):
        for broker_id in out:
            why = _why(before, after, key, broker_id) if broker_id in awake else "fenced"
            rows.append(_row(key, partition.leader_id, broker_id, why, before, after))
    return rows


def _out_of_sync(
    partitions: dict[TopicPartition, MetadataResponsePartition],
) -> dict[TopicPartition, tuple[MetadataResponsePartition, list[int]]]:
    """The partitions with replicas that are not in sync, and these replicas."""
    return {
        key: (partition, sorted({*partition.replica_nodes} - {*partition.isr_nodes}))
        for key, partition in partitions.items()
        if len(partition.isr_nodes) < len(partition.replica_nodes)
    }


def _row(
    key: TopicPartition,
    leader: int,
    broker_id: int,
    why: str,
    before: dict[int, Sizes | None],
    after: dict[int, Sizes | None],
) -> dict[str, Any]:
    return {
        "topic": key[0],
        "partition": key[1],
        "leader": leader,
        "broker": broker_id,
        "why": why,
        "missing_bytes": _missing(after, key, leader, broker_id),
        "bytes_per_second": _rate(before, after, key, broker_id) if why == "slow" else None,
    }


async def _sizes(cluster: Cluster, brokers: set[int], missing: Any) -> dict[int, Sizes | None]:
    """The sizes of these partitions by broker; None for brokers that do not respond."""

    async def of(broker_id: int) -> Sizes | None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await replica_sizes(cluster, [broker_id], list(missing)) or None
        except TimeoutError:
            return None

    ordered = sorted(brokers)
    return dict(zip(ordered, await asyncio.gather(*(of(broker_id) for broker_id in ordered)), strict=True))


def _why(before: dict[int, Sizes | None], after: dict[int, Sizes | None], key: TopicPartition, broker_id: int) -> str:
    if before.get(broker_id) is None or after.get(broker_id) is None:
        return "silent"
    return "slow" if _rate(before, after, key, broker_id) else "stuck"


def _rate(before: dict[int, Sizes | None], after: dict[int, Sizes | None], key: TopicPartition, broker_id: int) -> int:
    """The bytes per second by which the replica has grown, or was truncated."""
    old, new = before.get(broker_id) or {}, after.get(broker_id) or {}
    return int(abs(new.get((key, broker_id), 0) - old.get((key, broker_id), 0)) / LOOK_APART_S)


def _missing(after: dict[int, Sizes | None], key: TopicPartition, leader: int, broker_id: int) -> int | None:
    theirs, own = (after.get(leader) or {}).get((key, leader)), (after.get(broker_id) or {}).get((key, broker_id))
    return None if theirs is None or own is None else max(0, theirs - own)
