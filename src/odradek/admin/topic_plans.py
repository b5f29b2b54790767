"""Changes of topics and settings as plans. Brokers validate them first, where they can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.admin.plan import Plan, PlanError
from odradek.client.admin import (
    UNSET_COUNT,
    ConfigOperation,
    ResourceType,
    alter_configs,
    create_partitions,
    create_topic,
    delete_topic,
    describe_configs,
)
from odradek.client.cluster import Cluster
from odradek.client.groups import EARLIEST, LATEST, list_offsets
from odradek.common.topic_names import topic_name_problem
from odradek.protocol.messages.create_topics_response import CreatableTopicResult
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResourceResult
from odradek.settings.resources import ConfigSource

# The sources of a resource's own value.
_OWN = {
    ResourceType.TOPIC: (ConfigSource.DYNAMIC_TOPIC_CONFIG,),
    ResourceType.BROKER: (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
}
SHOWN_VALUE = 500


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; None uses the broker's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


async def plan_topic(cluster: Cluster, wanted: NewTopic) -> Plan:
    """Create a topic. Raises PlanError, ApiError."""
    problem = topic_name_problem(wanted.name)
    if problem:
        raise PlanError(f"topic {wanted.name[:260]!r}: {problem}")
    found = await _create(cluster, wanted, validate_only=True)
    lines = [
        f"Topic {wanted.name} is made, with {_many(found.num_partitions, 'partition')} and "
        f"{_many(found.replication_factor, 'replica')} of each.",
        *(f"{key} is {value}" for key, value in wanted.settings.items()),
    ]
    if found.replication_factor == 1:
        lines.append("With one replica its records are gone with the broker or the disk that has them.")
    return Plan(f"Make topic {wanted.name}", tuple(lines), lambda connected: _create(connected, wanted))


async def _create(cluster: Cluster, wanted: NewTopic, *, validate_only: bool = False) -> CreatableTopicResult:
    return await create_topic(
        cluster,
        wanted.name,
        partitions=UNSET_COUNT if wanted.partitions is None else wanted.partitions,
        replication_factor=UNSET_COUNT if wanted.replication_factor is None else wanted.replication_factor,
        configs=wanted.settings,
        validate_only=validate_only,
    )


async def plan_deletion(cluster: Cluster, name: str) -> Plan:
    """Delete a topic with its records. Raises ApiError."""
    topic = await cluster.topic(name)
    led = [(name, each.partition_index) for each in topic.partitions if each.leader_id >= 0]
    first = await list_offsets(cluster, dict.fromkeys(led, EARLIEST))
    last = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    count = sum(max(0, last[key] - first[key]) for key in led)
    lines = (
        f"Topic {name} is deleted, with {_many(len(topic.partitions), 'partition')} and {count:,} records.",
        "This cannot be undone. Programs that use it get errors, or make it again without its settings.",
    )
    return Plan(f"Delete topic {name}", lines, lambda connected: delete_topic(connected, name), typed=name)


async def plan_partitions(cluster: Cluster, name: str, count: int) -> Plan:
    """Add partitions to a topic. Raises PlanError, ApiError."""
    before = len((await cluster.topic(name)).partitions)
    if count <= before:
        raise PlanError(f"topic {name} has {_many(before, 'partition')} and can only be given more")
    await create_partitions(cluster, name, count, validate_only=True)
    lines = (
        f"Topic {name} has {_many(before, 'partition')}, and will have {count:,}. None can be taken away again.",
        "Most keys go to another partition from then on: their older records stay where they are, so that readers may "
        "see records of one key out of order.",
    )
    return Plan(f"Give topic {name} {count:,} partitions", lines, lambda to: create_partitions(to, name, count))


async def plan_setting(cluster: Cluster, kind: ResourceType, name: str, key: str, value: str | None) -> Plan:
    """Change one setting of a topic, a broker, or all brokers (""); None removes the resource's own value.

    Raises:
        PlanError: the resource has no value of its own.
        ApiError: the setting is unknown, or the value invalid.
    """
    now = await _described(cluster, kind, name, key)
    is_own = now is not None and now.config_source in _OWN[kind]
    if value is None and not is_own:
        raise PlanError(f"{key} of {of_resource(kind, name)} has no value of its own that could be taken away")
    change = (key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
    await alter_configs(cluster, kind, name, [change], validate_only=True)
    lines = [f"{key} of {of_resource(kind, name)} is now {_shown(now)}."]
    if value is None:
        lines.append("Its own value is taken away: what all brokers have, their file, or the default counts then.")
    else:
        is_shown = await _may_be_shown(cluster, kind, name, key, now)
        lines.append(f"It becomes {_cut(value)}." if is_shown else "It becomes another one (not shown).")
    if now is not None and now.read_only:
        lines.append("A broker reads it at its start alone.")

    async def work(connected: Cluster) -> None:
        await alter_configs(connected, kind, name, [change])

    return Plan(f"Set {key}" if value is not None else f"Take {key} away", tuple(lines), work)


async def _described(cluster: Cluster, kind: ResourceType, name: str, key: str) -> DescribeConfigsResourceResult | None:
    (found,) = await describe_configs(cluster, kind, [name])
    return next((each for each in found.configs if each.name == key), None)


async def _may_be_shown(
    cluster: Cluster, kind: ResourceType, name: str, key: str, now: DescribeConfigsResourceResult | None
) -> bool:
    """Whether the setting is not sensitive; an unknown one may be.

    Brokers describe only those cluster-wide defaults that were set; the other settings are described by each broker.
    """
    if now is None and kind is ResourceType.BROKER and not name:
        await cluster.metadata([])
        now = await _described(cluster, kind, str(min(cluster.brokers)), key)
    return now is not None and not now.is_sensitive


def of_resource(kind: ResourceType, name: str) -> str:
    """The resource of a setting, as text."""
    return f"{kind.name.lower()} {name}" if name else "all brokers"


def _shown(now: DescribeConfigsResourceResult | None) -> str:
    if now is None:
        return "not set"
    if now.is_sensitive:
        return "one that is not shown"
    return "null" if now.value is None else _cut(now.value) or "empty"


def _cut(value: str) -> str:
    return value if len(value) <= SHOWN_VALUE else f"{value[:SHOWN_VALUE]}… ({len(value):,} signs)"


def _many(count: int, noun: str) -> str:
    if count < 0:
        return f"the brokers' default of {noun}s"  # older brokers do not say it
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
