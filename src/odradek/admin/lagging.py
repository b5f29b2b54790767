"""Which replicas are not in sync, and why, found out with the APIs that any cluster has.

- fenced   the controller counts the broker out: its process is gone, or has not been heard of for its session
- silent   the broker does not answer us: it is paused, or its machine is not reached
- slow     it fetches, and has not come so far yet
- stuck    it answers us and fetches nothing: it may be cut off from the leader; its own log says why

The leader alone knows since when, and how often it fell out: `odradek_follower_out_seconds`
and `odradek_follower_falls` of its metrics, and its log.
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

# Between two looks at how large a replica is, and for how long a broker may keep us waiting.
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
    """The partitions some of whose replicas are not in sync, with these."""
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
    """What each broker holds of these partitions; None where it does not answer."""

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
    """Bytes a second that the replica has grown by, or that it was cut by."""
    old, new = before.get(broker_id) or {}, after.get(broker_id) or {}
    return int(abs(new.get((key, broker_id), 0) - old.get((key, broker_id), 0)) / LOOK_APART_S)


def _missing(after: dict[int, Sizes | None], key: TopicPartition, leader: int, broker_id: int) -> int | None:
    theirs, own = (after.get(leader) or {}).get((key, leader)), (after.get(broker_id) or {}).get((key, broker_id))
    return None if theirs is None or own is None else max(0, theirs - own)
