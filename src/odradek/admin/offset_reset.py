"""Resetting the committed offsets of a group: a plan within the range of the partitions, and its execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek.client.cluster import Cluster
from odradek.client.groups import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    describe_group,
    list_offsets,
)
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.topic_names import TopicPartition


class ResetError(OdradekError):
    """The offsets cannot be reset.

    `reason` is "empty", "unlisted", "unshiftable", "no-partition" or "in-use".
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Position:
    """The position to reset to; exactly one field is set."""

    edge: str = ""  # "earliest", "latest" or "current"
    offset: int | None = None
    timestamp_ms: int | None = None
    shift: int | None = None
    listed: dict[str, dict[TopicPartition, int]] | None = None  # by group, "" is any


@dataclass(slots=True)
class ResetPlan:
    """The present committed offset (None if there is none) and the new one, by partition."""

    group: str
    offsets: dict[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


async def plan_reset(
    cluster: Cluster, group: str, chosen: Sequence[tuple[str, list[int]]], position: Position
) -> ResetPlan:
    """Compute the offsets to commit for a group, limited to the range of the partitions.

    Args:
        chosen: topics with partitions, or none for all; without topics, all partitions with a committed offset.
    Raises:
        ResetError: there is nothing to reset, or the position cannot be computed.
        ApiError: errors of brokers.
    """
    committed = await committed_offsets(cluster, group)
    plan = ResetPlan(group)
    if position.listed is not None:
        wanted = position.listed.get(group, position.listed.get("", {}))
        partitions = list(wanted)
        if not partitions:
            raise ResetError(f"the plan has nothing for group {group}", "unlisted")
    else:
        wanted = {}
        partitions = await _partitions(cluster, chosen) if chosen else list(committed)
    if not partitions:
        raise ResetError(f"nothing to reset for group {group}: it has committed nothing; name topics", "empty")
    first = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    last = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    if position.timestamp_ms is not None:
        at = await list_offsets(cluster, dict.fromkeys(partitions, position.timestamp_ms))
        wanted = {key: offset if offset >= 0 else last[key] for key, offset in at.items()}
    for key in sorted(partitions):
        target = _target(group, key, position, wanted, committed, first, last)
        kept = min(max(target, first[key]), last[key])
        if kept != target:
            plan.warnings.append(f"{key[0]}-{key[1]} has no offset {target}; {kept} is the nearest")
        plan.offsets[key] = (committed[key].offset if key in committed else None, kept)
    return plan


def _target(
    group: str,
    key: TopicPartition,
    position: Position,
    wanted: dict[TopicPartition, int],
    committed: dict[TopicPartition, CommittedOffset],
    first: dict[TopicPartition, int],
    last: dict[TopicPartition, int],
) -> int:
    if key in wanted:
        return wanted[key]
    if position.offset is not None:
        return position.offset
    if position.edge == "earliest":
        return first[key]
    if position.edge == "latest":
        return last[key]
    if position.shift is None:
        # As Kafka's tool does, use the end if there is no committed offset.
        return committed[key].offset if key in committed else last[key]
    if key not in committed:
        raise ResetError(f"group {group} has committed nothing for {key[0]}-{key[1]} to shift", "unshiftable")
    return committed[key].offset + position.shift


async def _partitions(cluster: Cluster, chosen: Sequence[tuple[str, list[int]]]) -> list[TopicPartition]:
    found: dict[TopicPartition, None] = {}
    for topic, some in chosen:
        known = {partition.partition_index for partition in (await cluster.topic(topic)).partitions}
        for index in some or sorted(known):
            if index not in known:
                raise ResetError(f"topic {topic} has no partition {index}; it has {len(known)}", "no-partition")
            found[topic, index] = None
    return list(found)


async def check_idle(cluster: Cluster, name: str) -> None:
    """Raise ResetError if a group has members, which would overwrite the offsets."""
    try:
        group = await describe_group(cluster, name)
    except ApiError as error:
        # Offsets may be committed for a group that does not exist yet.
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if group.members:
        seen = f"{group.state}, {len(group.members)} members"
        raise ResetError(f"group {name} is in use ({seen}); stop its members first", "in-use")


async def apply_reset(cluster: Cluster, plan: ResetPlan) -> None:
    """Commit the offsets of a plan. Raises ApiError: UNKNOWN_MEMBER_ID if the group has members."""
    await commit_offsets(cluster, plan.group, {key: new for key, (_, new) in plan.offsets.items()})
