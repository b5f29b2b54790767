"""The present assignment for `partitions` and `drain`: checks of plans, and the progress of reassignments."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.partition_plan import Assignment, Replicas
from odradek.client.admin import ConfigOperation, ResourceType, alter_configs, describe_cluster, describe_configs
from odradek.client.cluster import Cluster, partitions_of
from odradek.client.reassignment import GONE, Move, ongoing_reassignments, replica_sizes
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import TopicPartition
from odradek.protocol.extras import read_broker_host
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResult
from odradek.protocol.messages.metadata_response import (
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.replica.throttle import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from odradek.settings.broker import DRAIN_KEY

# Source of a value in DescribeConfigs: set for this broker while it runs.
DYNAMIC_BROKER_CONFIG = 2
MIN_ISR = "min.insync.replicas"


@dataclass
class View:
    """The present assignment of replicas.

    Attributes:
        racks, hosts: rack and machine of all registered brokers, None where not known.
        resting: those that are away or drain.
        weights: the largest replica's bytes of each partition, where they were asked for.
    """

    racks: dict[int, str | None]
    resting: set[int]
    partitions: dict[TopicPartition, MetadataResponsePartition]
    weights: dict[TopicPartition, int] = field(default_factory=dict)
    hosts: dict[int, str | None] = field(default_factory=dict)

    @property
    def assignment(self) -> dict[TopicPartition, Replicas]:
        return {key: tuple(partition.replica_nodes) for key, partition in self.partitions.items()}


async def load_view(cluster: Cluster, *, topic: str | None = None, sizes: bool = False) -> View:
    """Request the present assignment.

    Args:
        topic: only topics whose whole name this regular expression matches.
    Raises:
        CliError: no regular expression; ApiError.
    """
    described = await describe_cluster(cluster, fenced=True)
    racks = {broker.broker_id: broker.rack for broker in described.brokers}
    fenced = {broker.broker_id for broker in described.brokers if broker.is_fenced}
    awake = sorted(racks.keys() - fenced)
    resting = fenced | {broker for broker in awake if await _rests(cluster, broker)}
    partitions = partitions_of(_matching((await cluster.metadata()).topics, topic))
    weights = await _largest_replicas(cluster, awake) if sizes else {}
    hosts = {broker.broker_id: read_broker_host(broker) for broker in described.brokers}
    return View(racks, resting, partitions, weights, hosts)


def _matching(topics: list[MetadataResponseTopic], pattern: str | None) -> list[MetadataResponseTopic]:
    if pattern is None:
        return topics
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise CliError(f"--topic {pattern}: {error}", code=USAGE) from None
    found = [topic for topic in topics if expression.fullmatch(topic.name or "")]
    if not found:
        raise CliError(f"no topic matches {pattern}; `odradek topics list` shows them", code=NOT_FOUND)
    return found


async def _largest_replicas(cluster: Cluster, brokers: Iterable[int]) -> dict[TopicPartition, int]:
    """The bytes of the largest replica of each partition."""
    largest: dict[TopicPartition, int] = {}
    for (key, _), size in (await replica_sizes(cluster, brokers)).items():
        largest[key] = max(largest.get(key, 0), size)
    return largest


async def _rests(cluster: Cluster, broker_id: int) -> bool:
    """Whether a broker drains, or is unreachable and not fenced yet."""
    try:
        (found,) = await describe_configs(cluster, ResourceType.BROKER, [str(broker_id)])
    except GONE:
        return True
    return any(entry.name == DRAIN_KEY for entry in found.configs)


async def min_isr_of(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    """min.insync.replicas of topics, including defaults. Raises ApiError."""
    found: dict[str, int] = {}
    for result in await describe_configs(cluster, ResourceType.TOPIC, sorted(set(topics))):
        values = {entry.name: entry.value for entry in result.configs}
        found[result.resource_name] = int(values.get(MIN_ISR) or 1)
    return found


async def check_plan(cluster: Cluster, view: View, wanted: Assignment) -> list[str]:
    """A line for each problem of a plan: missing partitions or brokers, too few replicas for min.insync.replicas."""
    known = {key: replicas for key, replicas in wanted.items() if key in view.partitions}
    problems = [f"{topic}-{number} does not exist" for topic, number in sorted(wanted.keys() - known.keys())]
    needed = await min_isr_of(cluster, (topic for topic, _ in known))
    for (topic, number), replicas in sorted(known.items()):
        unknown = [broker for broker in replicas if broker not in view.racks]
        if unknown:
            problems.append(f"{topic}-{number}: the cluster has no broker {', '.join(map(str, unknown))}")
        if len(replicas) < needed[topic]:
            problems.append(
                f"{topic}-{number}: {len(replicas)} replicas are fewer than min.insync.replicas of the topic, "
                f"{needed[topic]}: producers with acks=all would be refused"
            )
    return problems


async def progress(cluster: Cluster, asked: Mapping[TopicPartition, Replicas | None]) -> list[dict[str, Any]]:
    """A row for each partition: its replicas, whether it moves, and how much the new replicas have copied.

    Args:
        asked: the target of each; None if that is not known, so that a partition that does not move is done.
    """
    if not asked:
        return []
    moves = await ongoing_reassignments(cluster, asked)
    there = partitions_of((await cluster.metadata(sorted({topic for topic, _ in asked}))).topics)
    holders = {broker for key in moves.keys() & there for broker in there[key].replica_nodes}
    sizes = await replica_sizes(cluster, sorted(holders & cluster.brokers.keys()), moves) if moves else {}
    rows = []
    for key, wanted in sorted(asked.items()):
        if key not in there:
            rows.append(_row(key, "missing", MetadataResponsePartition(), (), ()))
        elif key in moves:
            rows.append(_moving_row(key, there[key], moves[key], sizes))
        else:
            is_done = wanted in (None, tuple(there[key].replica_nodes))
            rows.append(_row(key, "done" if is_done else "differs", there[key], (), ()))
    return rows


def _moving_row(
    key: TopicPartition,
    partition: MetadataResponsePartition,
    move: Move,
    sizes: Mapping[tuple[TopicPartition, int], int],
) -> dict[str, Any]:
    row = _row(key, "moving", partition, move.adding, move.removing)
    total = sizes.get((key, partition.leader_id), 0)
    row["total_bytes"] = total * len(row["adding"])
    row["copied_bytes"] = sum(min(sizes.get((key, broker), 0), total) for broker in row["adding"])
    return row


def not_led_by_first(rows: Iterable[Mapping[str, Any]]) -> list[TopicPartition]:
    """The rows of `progress` that are done and not led by their first replica."""
    return [
        (row["topic"], row["partition"])
        for row in rows
        if row["state"] == "done" and row["replicas"] and row["leader"] != row["replicas"][0]
    ]


def _row(
    key: TopicPartition, state: str, partition: MetadataResponsePartition, adding: Replicas, removing: Replicas
) -> dict[str, Any]:
    return {
        "topic": key[0],
        "partition": key[1],
        "state": state,
        "leader": partition.leader_id,
        "replicas": list(partition.replica_nodes),
        "adding": list(adding),
        "removing": list(removing),
        "isr": list(partition.isr_nodes),
        "copied_bytes": 0,
        "total_bytes": 0,
    }


async def throttle_moves(cluster: Cluster, view: View, changes: Assignment, rate: int) -> None:
    """Throttle these moves: the present replicas as leaders, the new ones as followers (KIP-73).

    A broker that is away copies nothing, and cannot be asked: it gets no rate.
    """
    touched: set[int] = set()
    by_topic: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, number), replicas in sorted(changes.items()):
        present = view.assignment[topic, number]
        leading, following = by_topic.setdefault(topic, ([], []))
        leading += [f"{number}:{broker}" for broker in present]
        following += [f"{number}:{broker}" for broker in replicas if broker not in present]
        touched |= {*present, *replicas}
    for broker in sorted(touched):
        text = str(rate)
        changes_of_broker = [(key, ConfigOperation.SET, text) for key in (LEADER_RATE, FOLLOWER_RATE)]
        with contextlib.suppress(*GONE):
            await alter_configs(cluster, ResourceType.BROKER, str(broker), changes_of_broker)
    for topic, (leading, following) in by_topic.items():
        await alter_configs(
            cluster,
            ResourceType.TOPIC,
            topic,
            [
                (key, ConfigOperation.SET, ",".join(limited))
                for key, limited in ((LEADER_REPLICAS, leading), (FOLLOWER_REPLICAS, following))
                if limited
            ],
        )


async def end_throttle(cluster: Cluster, keys: Iterable[TopicPartition]) -> None:
    """Remove the throttles from these topics and all brokers; if there are none, nothing happens.

    Topics that have been deleted are left out.
    """
    for result in await _described(cluster, sorted({topic for topic, _ in keys})):
        present = {entry.name: entry.value for entry in result.configs}
        gone = [key for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS) if present.get(key)]
        if gone:
            await _delete(cluster, ResourceType.TOPIC, result.resource_name, gone)
    if await ongoing_reassignments(cluster):
        return  # others may be limited still
    await cluster.metadata([])
    for broker in sorted(cluster.brokers):
        await _end_rates(cluster, broker)


async def _described(cluster: Cluster, topics: list[str]) -> list[DescribeConfigsResult]:
    """The settings of the topics that exist."""
    try:
        return await describe_configs(cluster, ResourceType.TOPIC, topics) if topics else []
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    # One that is missing refuses them all, so each is asked for by itself.
    return [found for each in topics for found in await _described(cluster, [each])] if len(topics) > 1 else []


async def _end_rates(cluster: Cluster, broker: int) -> None:
    """Remove the rates of a broker, if it exists."""
    try:
        (described,) = await describe_configs(cluster, ResourceType.BROKER, [str(broker)])
    except GONE:
        return
    gone = [
        entry.name
        for entry in described.configs
        if entry.name in (LEADER_RATE, FOLLOWER_RATE) and entry.config_source == DYNAMIC_BROKER_CONFIG
    ]
    if gone:
        await _delete(cluster, ResourceType.BROKER, str(broker), gone)


async def _delete(cluster: Cluster, kind: ResourceType, name: str, keys: list[str]) -> None:
    try:
        await alter_configs(cluster, kind, name, [(key, ConfigOperation.DELETE, None) for key in keys])
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # deleted since
        raise CliError(f"the throttle of {name} was not ended: {error.message}") from None
