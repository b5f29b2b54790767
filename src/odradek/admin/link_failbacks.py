"""Fails topics of an old source back: they become mirrors of the topics that were promoted from them (ADR 0021).

The brokers write the end of the log to a file and cut the log (`odradek.link.failback`). Each step is idempotent: after
an interruption or a lost response all steps are run again. `here` is the old source's cluster, `source` the other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.admin.link_facts import Row, described, found_link, link_of_cluster
from odradek.admin.plan import PlanError
from odradek.client.admin import ConfigOperation, ResourceType, alter_configs, describe_configs
from odradek.client.epochs import epoch_end
from odradek.client.groups import EARLIEST, LATEST, commit_offsets, committed_offsets, list_groups, list_offsets
from odradek.common.errors import ApiError, ErrorCode
from odradek.link.agreement import Agreement, agree
from odradek.settings.link_names import source_name
from odradek.settings.links import MirrorState, links_of, mirror_key, other_source, promotions_of

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.client.cluster import Cluster
    from odradek.protocol.messages.metadata_response import MetadataResponseTopic
    from odradek.settings.links import Link, Promotion

Rows = list[Row]
PartitionKey = tuple[str, int]
LOOK_S = 0.3
# Consumers of groups with members are to fetch while the log ends at the cut: what comes then may reach their position.
MEMBERS_S = 3.0
# Groups are looked at again while some are moved: what a transaction commits meanwhile may be behind the cut, too.
MOST_PASSES = 5


class UnknownTopicError(PlanError):
    """A topic does not exist, or the client may not describe it."""


class UnfinishedError(PlanError):
    """A failback has begun, and cannot continue now; the text says what to do."""


@dataclass(slots=True)
class FailbackPlan:
    """The remaining steps of a failback.

    Attributes:
        done: topics whose failback is complete.
        going: topics whose failback is in progress.
        changes: the cluster-wide settings that begin the failback of the other topics; None deletes a setting.
        rows: a row for each partition of the other topics.
        sources: the names of the topics at the source.
    """

    link: Link
    done: list[str]
    going: list[str]
    changes: dict[str, str | None] = field(default_factory=dict)
    rows: Rows = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics whose failback is not complete."""
        return sorted({*self.going, *(row["topic"] for row in self.rows)})


# -- what is to be done -----------------------------------------------------------------------------------------------


async def known_plan(here: Cluster, name: str, topics: list[str]) -> tuple[FailbackPlan, list[str]]:
    """The part of the plan that needs no source, and the topics to compare with the source.

    Raises:
        UnknownLinkError, ApiError. PlanError: a topic is a mirror of the link already.
    """
    link = await link_of_cluster(here, name)
    mirrors = {topic: link.mirrors[topic] for topic in topics if topic in link.mirrors}
    going = [topic for topic, mirror in mirrors.items() if mirror.state is MirrorState.FAILBACK]
    done = [topic for topic, mirror in mirrors.items() if topic not in going and mirror.agreed_below]
    for topic in mirrors:
        if topic not in going and topic not in done:
            raise PlanError(f"{topic} is a mirror of link {name} already")
    sources = {topic: mirrors[topic].source_topic for topic in going}
    return FailbackPlan(link, done, going, sources=sources), [topic for topic in topics if topic not in mirrors]


async def compare(here: Cluster, source: Cluster, plan: FailbackPlan, topics: list[str]) -> None:
    """Add the changes and the cuts of these topics to a plan.

    Raises:
        PlanError: a topic has no common history with that of the source. ApiError.
    """
    plan.changes, names = await _changes(here, source, plan.link, topics)
    plan.sources |= names
    ours, theirs = await _topics(here, topics, "here"), await _topics(source, names.values(), "at the source")
    for topic in topics:
        below = int(plan.changes[mirror_key(plan.link.name, "agreed.below", topic)] or 0)
        compacted = await _is_compacted(here, topic)
        plan.rows += await _compared(here, source, ours[topic], theirs[names[topic]], below, is_compacted=compacted)


async def _changes(
    here: Cluster, source: Cluster, link: Link, topics: list[str]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """The settings that begin the failback, and the names of the topics at the source."""
    settings = await _settings(here)
    promoted_here, promoted = promotions_of(settings), promotions_of(await _settings(source))
    ours = await _topics(here, topics, "here")
    names = {topic: _name_at_source(link, topic, ours[topic].topic_id, promoted) for topic in topics}
    found = await _topics(source, names.values(), "at the source")
    theirs = {topic: found[name] for topic, name in names.items()}
    changes: dict[str, str | None] = {}
    for topic, name in names.items():
        known = promoted.get(name)
        if known is None or known.source_id != ours[topic].topic_id:
            raise PlanError(
                f"{name} at {link.bootstrap_servers} was not promoted from this one: they have no history in "
                "common. Delete the topic here, and mirror it"
            )
        if other := other_source(settings, link.name, topic, str(theirs[topic].topic_id)):
            raise PlanError(
                f"{topic} was failed back by link {other} before and has records of that source: what it has in "
                f"common with {link.bootstrap_servers} is unknown. Delete the topic here, and mirror it"
            )
        if len(ours[topic].partitions) > len(theirs[topic].partitions):
            raise PlanError(
                f"{topic} has {len(ours[topic].partitions)} partitions here and "
                f"{len(theirs[topic].partitions)} at the source: add them there first"
            )
        old = promoted_here[topic].link if topic in promoted_here else None
        numbers = [each.partition_index for each in ours[topic].partitions]
        changes |= changes_of(link.name, topic, theirs[topic].topic_id, known.first_epoch, old, numbers)
        key = mirror_key(link.name, "source.topic", topic)
        if name != source_name(link.prefix, topic):
            changes[key] = name
        elif key in settings:
            changes[key] = None  # of a failback before, from a topic of another name
    return changes, names


def _name_at_source(link: Link, topic: str, topic_id: UUID, promoted: Mapping[str, Promotion]) -> str:
    """The topic of the source that was promoted from this one; the name by the link's prefix if there is none.

    Raises:
        PlanError: there are several, and none has the name by the prefix.
    """
    name = source_name(link.prefix, topic) or topic
    found = sorted(other for other, each in promoted.items() if each.source_id == topic_id)
    if name in found or not found:
        return name
    if len(found) > 1:
        raise PlanError(
            f"{topic} was promoted at {link.bootstrap_servers} as {', '.join(found)}: which of them it follows is "
            "unknown. Delete the others there"
        )
    return found[0]


def changes_of(
    link: str, topic: str, source_id: UUID, first_epoch: int, promoted_by: str | None, partitions: Iterable[int]
) -> dict[str, str | None]:
    """The settings that begin the failback, in one change.

    Args:
        first_epoch: the leader epoch in which the source was promoted.
        promoted_by: the link of which the topic here was a mirror before, and under which its settings are stored.
    """
    changes: dict[str, str | None] = {}
    if promoted_by not in (None, link):
        old = ["mirror", "source.id", "source.topic", "leader.epoch", "agreed.below", "own.from"]
        old += [f"begun.{each}" for each in partitions]
        changes |= {mirror_key(promoted_by, what, topic): None for what in old}
    return changes | {
        mirror_key(link, "mirror", topic): str(MirrorState.FAILBACK),
        mirror_key(link, "source.id", topic): str(source_id),
        mirror_key(link, "agreed.below", topic): str(first_epoch),
    }


async def _topics(cluster: Cluster, topics: Collection[str], where: str) -> dict[str, MetadataResponseTopic]:
    found = {each.name or "": each for each in (await cluster.metadata(list(topics))).topics}
    for topic in topics:
        if code := found[topic].error_code:
            raise UnknownTopicError(f"topic {topic} {where}: {ErrorCode(code).name}")
    return found


async def _settings(cluster: Cluster) -> dict[str, str]:
    (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
    return {entry.name: entry.value or "" for entry in found.configs}


async def _compared(
    here: Cluster,
    source: Cluster,
    ours: MetadataResponseTopic,
    theirs: MetadataResponseTopic,
    below: int,
    *,
    is_compacted: bool,
) -> Rows:
    name = ours.name or ""
    keys = [(name, each.partition_index) for each in ours.partitions]
    starts = await list_offsets(here, dict.fromkeys(keys, EARLIEST))
    ends = await list_offsets(here, dict.fromkeys(keys, LATEST))
    rows: Rows = []
    for key in sorted(keys):
        agreed = await _agreed(here, source, ours, theirs, key[1], below)
        starts_over = agreed.starts_over or (is_compacted and agreed.offset < ends[key])
        first = starts[key] if starts_over else max(agreed.offset, starts[key])
        rows.append(
            {
                "topic": name,
                "partition": key[1],
                "end": ends[key],
                "kept": None if starts_over else min(agreed.offset, ends[key]),
                "cut": max(0, ends[key] - first),
                "starts_over": starts_over,
            }
        )
    return rows


async def _is_compacted(cluster: Cluster, topic: str) -> bool:
    (found,) = await describe_configs(cluster, ResourceType.TOPIC, [topic])
    return any(entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in found.configs)


async def _agreed(
    here: Cluster,
    source: Cluster,
    ours: MetadataResponseTopic,
    theirs: MetadataResponseTopic,
    number: int,
    below: int,
) -> Agreement:
    name, name_there = ours.name or "", theirs.name or ""
    leader_here, leader_there = _leader(ours, number), _leader(theirs, number)

    async def source_end(asked: int) -> tuple[int, int]:
        return await epoch_end(source, name_there, number, asked, leader_id=leader_there)

    async def source_start() -> int:
        return (await list_offsets(source, {(name_there, number): EARLIEST}))[name_there, number]

    async def own_end(asked: int) -> tuple[int, int]:
        return await epoch_end(here, name, number, asked, leader_id=leader_here)

    return await agree(below, source_end, source_start, own_end)


def _leader(topic: MetadataResponseTopic, number: int) -> int:
    leader = next((each.leader_id for each in topic.partitions if each.partition_index == number), -1)
    if leader < 0:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{number} has no leader")
    return leader


# -- doing it ---------------------------------------------------------------------------------------------------------


async def begin(here: Cluster, source: Cluster, plan: FailbackPlan) -> None:
    """Begin the failback: make the topics read-only and let the brokers cut them, unless the source has changed since.

    Raises:
        PlanError: the source's topic or its promotion has changed. ApiError.
    """
    topics = sorted({row["topic"] for row in plan.rows})
    if not topics:
        return
    if (await _changes(here, source, plan.link, topics))[0] != plan.changes:
        raise PlanError(
            f"{', '.join(topics)} at {plan.link.bootstrap_servers} has changed since it was compared: "
            "give the command again"
        )
    operations = [
        (key, ConfigOperation.DELETE if text is None else ConfigOperation.SET, text)
        for key, text in plan.changes.items()
    ]
    try:
        await alter_configs(here, ResourceType.BROKER, "", operations)
    except ApiError as error:
        if error.code is not ErrorCode.INVALID_REQUEST or not await _has_begun(here, plan):
            raise


async def _has_begun(here: Cluster, plan: FailbackPlan) -> bool:
    """Whether the change was applied, though its response was lost."""
    settings = await _settings(here)
    return all(settings.get(key) == text for key, text in plan.changes.items())


async def cuts(
    here: Cluster, name: str, topics: list[str], tell: Callable[[str], None] = lambda text: None
) -> dict[PartitionKey, int]:
    """Wait until all replicas are cut; returns the offset of each cut.

    Args:
        tell: called with the reason of the wait, when it changes.
    Raises:
        UnfinishedError: nothing has changed for the cluster's timeout. ApiError.
    """
    loop, last, said = asyncio.get_running_loop(), None, ""
    while True:
        found, uncut = await _progress(here, name, topics)
        if not uncut:
            return found
        rows = [row for row in await report(here, name, topics) if (row["topic"], row["partition"]) in uncut]
        reasons = [f"{row['topic']}-{row['partition']}: {row['reason']}" for row in rows if row["reason"]]
        now = (len(uncut), tuple(reasons), tuple(row["end"] for row in rows))
        if last is None or now != last[0]:
            last = now, loop.time()
        reason = "; ".join(reasons) or f"{len(uncut)} partitions are not cut yet"
        if loop.time() - last[1] >= here.timeout_ms / 1000:
            raise UnfinishedError(
                f"{reason}. The brokers go on, and `odradek links failback` once more goes on with them"
            )
        if reasons and reason != said:
            tell(reason)
            said = reason
        await asyncio.sleep(LOOK_S)


async def _progress(here: Cluster, name: str, topics: list[str]) -> tuple[dict[PartitionKey, int], set[PartitionKey]]:
    """The offsets of completed cuts, and the partitions without one."""

    async def attempt() -> Link:
        link = found_link(name, links_of(await _settings(here)))
        if any(topic not in link.mirrors for topic in topics):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker has not applied the failback yet")
        return link

    link = await here.retried(attempt)
    found = await _topics(here, topics, "here")
    every = {(topic, each.partition_index) for topic in topics for each in found[topic].partitions}
    known = {(topic, number): offset for topic in topics for number, offset in link.mirrors[topic].cuts.items()}
    return known, every - known.keys()


async def move_groups(here: Cluster, cut_to: dict[PartitionKey, int]) -> Rows:
    """Reset groups without members whose offsets are beyond the cut; members of other groups reset their own.

    It waits for open transactions that may commit such an offset (KIP-447).

    Raises:
        UnfinishedError: a transaction does not end, or clients commit such offsets repeatedly. ApiError.
    """
    rows: Rows = []
    for _ in range(MOST_PASSES):
        found = await _move_groups(here, cut_to, {row["group"] for row in rows if not row["moved"]})
        rows += found
        if not any(row["moved"] for row in found):
            break
    else:
        groups = ", ".join(sorted({row["group"] for row in found if row["moved"]}))
        raise UnfinishedError(
            f"offsets behind the cut are still committed by clients outside of groups: {groups}. Stop them, and give "
            "`odradek links failback` once more"
        )
    if not all(row["moved"] for row in rows):
        await asyncio.sleep(MEMBERS_S)
    return rows


async def _move_groups(here: Cluster, cut_to: dict[PartitionKey, int], left_out: set[str]) -> Rows:
    rows: Rows = []
    for group in await list_groups(here):
        if group.group_type.lower() not in ("", "classic", "consumer") or group.group_id in left_out:
            continue
        committed = await _stable_offsets(here, group.group_id, cut_to)
        beyond = {key: cut_to[key] for key, offset in committed.items() if offset > cut_to[key]}
        if not beyond:
            continue
        moved = True
        try:
            await commit_offsets(here, group.group_id, beyond)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            moved = False
        rows += [
            {
                "group": group.group_id,
                "topic": key[0],
                "partition": key[1],
                "offset": committed[key],
                "to": offset,
                "moved": moved,
            }
            for key, offset in sorted(beyond.items())
        ]
    return rows


async def _stable_offsets(here: Cluster, group: str, wanted: dict[PartitionKey, int]) -> dict[PartitionKey, int]:
    try:
        found = await committed_offsets(here, group, stable=True, only=wanted)
    except ApiError as error:
        if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
        raise UnfinishedError(
            f"an open transaction may commit offsets of group {group} behind the cut: end it, or wait for its timeout "
            "(transaction.timeout.ms of its producer), and give `odradek links failback` once more"
        ) from None
    return {key: each.offset for key, each in found.items() if key in wanted}


async def check_source(here: Cluster, source: Cluster, plan: FailbackPlan) -> None:
    """Check that the source's topics are no mirrors: if both clusters fail back to each other, neither failback ends.

    Raises:
        UnfinishedError, ApiError.
    """
    link, topics = plan.link, plan.topics
    ours = await _topics(here, topics, "here")
    promoted = promotions_of(await _settings(source))
    for topic in topics:
        name = plan.sources[topic]
        if name not in promoted or promoted[name].source_id != ours[topic].topic_id:
            raise UnfinishedError(
                f"{name} at {link.bootstrap_servers} is not a topic of its own any more: give one of the two up with "
                f"`odradek links failover {link.name} {topic}`"
            )


async def end(here: Cluster, name: str, topics: list[str]) -> None:
    """End the failback: the topics are mirrors, and fetch records. Raises ApiError."""
    changes = [(mirror_key(name, "mirror", topic), ConfigOperation.SET, str(MirrorState.ACTIVE)) for topic in topics]
    await alter_configs(here, ResourceType.BROKER, "", changes)


async def report(here: Cluster, name: str, topics: list[str]) -> list[dict[str, Any]]:
    """The rows of `links describe` for these topics. Raises ApiError."""
    found = await described(here, await link_of_cluster(here, name))
    return [row for row in found["partitions"] if row["topic"] in topics]
