"""`odradek links failback`: topics become mirrors of those that were promoted from them in another cluster.

What goes is said before. The brokers write it aside and cut (`odradek.link.failback`); then groups that are further
than the cut are set to it, and the topics are mirrors. A command that is ended in between is given again, and goes on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.cli.confirmation import confirm
from odradek.cli.connect import Target, administer, cluster_at
from odradek.cli.errors import FAILED, NOT_FOUND, UNREACHABLE, USAGE, CliError
from odradek.cli.output import note, print_json, print_table, say

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.client.cluster import Cluster
    from odradek.protocol.messages.metadata_response import MetadataResponseTopic
    from odradek.settings.links import Link

Rows = list[dict[str, Any]]
PartitionKey = tuple[str, int]
EARLIEST, LATEST = -2, -1
LOOK_S = 0.3
# Consumers of groups with members are to fetch while the log ends at the cut: what comes then may reach their position.
MEMBERS_S = 3.0
_SHOWN = ("topic", "partition", "end", "kept", "cut", "starts_over")


@dataclass(slots=True)
class Plan:
    """What is to be done.

    Attributes:
        going: topics of which it was begun before.
        changes: settings of all brokers together for the others; None takes one away.
        rows: of the others, a row for each partition.
    """

    link: Link
    going: list[str]
    changes: dict[str, str | None]
    rows: Rows


def fail_back(
    name: str, topics: list[str], here: Target, source_properties: dict[str, str], *, yes: bool, as_json: bool
) -> None:
    """
    Args:
        source_properties: settings of the client by which the link's source is asked.
    Raises:
        CliError, ApiError.
    """
    wanted = sorted(set(topics))
    plan = administer(here, lambda cluster: _plan(cluster, name, wanted, source_properties))
    if plan.changes:
        if not as_json:
            _show(plan.rows)
        confirm(_question(plan), yes=yes)
        administer(here, lambda cluster: _begin(cluster, plan.changes))
    cuts = administer(here, lambda cluster: _cuts(cluster, name, wanted))
    groups = administer(here, lambda cluster: _move_groups(cluster, cuts))
    administer(here, lambda cluster: _check_source(cluster, plan.link, wanted, source_properties))
    administer(here, lambda cluster: _end(cluster, name, wanted))
    found = administer(here, lambda cluster: _described(cluster, name, wanted))
    if as_json:
        print_json(
            {"link": name, "done": "failback", "topics": wanted, "partitions": _cut_rows(cuts, found), "groups": groups}
        )
        return
    _report(name, wanted, found, groups)


def _show(rows: Rows) -> None:
    print_table(
        [name.upper().replace("_", "-") for name in _SHOWN],
        [["-" if row[name] is None else str(row[name]).lower() for name in _SHOWN] for row in rows],
    )
    if any(row["starts_over"] for row in rows):
        say("A partition that starts over has nothing left that both have: all of it goes aside, and comes again.")
    say("What is cut is written to files beside the logs first. What is written here until then goes with it.")


def _question(plan: Plan) -> str:
    topics = ", ".join(sorted({row["topic"] for row in plan.rows}))
    count = sum(row["cut"] for row in plan.rows)
    what = f"{count} offsets that only this cluster has are cut" if count else "nothing that is known of is cut"
    return f"make {topics} mirrors of {plan.link.bootstrap_servers}? ({what})"


def _report(name: str, topics: list[str], found: Rows, groups: Rows) -> None:
    from odradek.cli.link_state import cut_line

    for row in found:
        if row["cut"]:
            say(cut_line(row))
    for each in groups:
        where = f"{each['group']} at {each['topic']}-{each['partition']}"
        if each["moved"]:
            say(f"{where}: set from {each['offset']} to {each['to']}")
        else:
            note(f"{where}: has members, and stays at {each['offset']}; they are reset by their own settings")
    say(f"{name}: failed back {', '.join(topics)}")


def _cut_rows(cuts: dict[PartitionKey, int], found: Rows) -> Rows:
    known = {(row["topic"], row["partition"]): row["cut"] or {} for row in found}
    return [
        {
            "topic": topic,
            "partition": number,
            "offset": offset,
            **{key: known.get((topic, number), {}).get(key) for key in ("broker", "file", "bytes")},
        }
        for (topic, number), offset in sorted(cuts.items())
    ]


async def _settings(cluster: Cluster) -> dict[str, str]:
    from odradek.client.admin import ResourceType, describe_configs

    (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
    return {entry.name: entry.value or "" for entry in found.configs}


async def _link(cluster: Cluster, name: str) -> Link:
    from odradek.cli.links import links_here

    links = await links_here(cluster)
    if name not in links:
        raise CliError(
            f"there is no link {name}; see `odradek links list`. An old source that is Apache Kafka has no links: "
            "delete its topic, and copy it again",
            code=NOT_FOUND,
        )
    return links[name]


# What is to be done


async def _plan(cluster: Cluster, name: str, topics: list[str], source_properties: dict[str, str]) -> Plan:
    link = await _link(cluster, name)
    going = [topic for topic in topics if topic in link.mirrors and link.mirrors[topic].state == "failback"]
    for topic in topics:
        if topic in link.mirrors and topic not in going:
            raise CliError(f"{topic} is a mirror of link {name} already", code=USAGE)
    plan = Plan(link, going, {}, [])
    if begun := [topic for topic in topics if topic not in going]:
        await _compare(cluster, plan, begun, source_properties)
    return plan


async def _compare(cluster: Cluster, plan: Plan, topics: list[str], source_properties: dict[str, str]) -> None:
    from odradek.client.connection import RequestTimeoutError, UnreachableError
    from odradek.settings.links import promotions_of

    link = plan.link
    here = await _topics(cluster, topics, "here")
    promoted_here = promotions_of(await _settings(cluster))
    try:
        async with cluster_at(Target(link.bootstrap_servers, source_properties))() as source:
            there = await _topics(source, topics, "at the source")
            promoted = promotions_of(await _settings(source))
            for topic in topics:
                known = promoted.get(topic)
                if known is None or known.source_id != here[topic].topic_id:
                    raise CliError(
                        f"{topic} at {link.bootstrap_servers} was not promoted from this one: they have no history in "
                        "common. Delete the topic here, and mirror it",
                        code=USAGE,
                    )
                if len(here[topic].partitions) > len(there[topic].partitions):
                    raise CliError(
                        f"{topic} has {len(here[topic].partitions)} partitions here and "
                        f"{len(there[topic].partitions)} at the source: add them there first",
                        code=USAGE,
                    )
                compacted = await _is_compacted(cluster, topic)
                plan.rows += await _compared(
                    cluster, source, here[topic], there[topic], known.first_epoch, is_compacted=compacted
                )
                old = promoted_here[topic].link if topic in promoted_here else None
                plan.changes |= changes_of(link.name, topic, there[topic].topic_id, known.first_epoch, old)
    except (UnreachableError, RequestTimeoutError) as error:
        raise CliError(
            f"the source {link.bootstrap_servers}: {error}; name how to reach it from here with --source-config",
            code=UNREACHABLE,
        ) from None


def changes_of(
    link: str, topic: str, source_id: UUID, first_epoch: int, promoted_by: str | None
) -> dict[str, str | None]:
    """The settings that begin it, in one change.

    Args:
        first_epoch: under which the source was promoted.
        promoted_by: the link that the topic here was a mirror of before, and is remembered by.
    """
    from odradek.settings.links import MirrorState, mirror_key

    changes: dict[str, str | None] = {}
    if promoted_by not in (None, link):
        old = ("mirror", "source.id", "leader.epoch", "agreed.below")
        changes |= {mirror_key(promoted_by, what, topic): None for what in old}
    return changes | {
        mirror_key(link, "mirror", topic): str(MirrorState.FAILBACK),
        mirror_key(link, "source.id", topic): str(source_id),
        mirror_key(link, "agreed.below", topic): str(first_epoch),
    }


async def _topics(cluster: Cluster, topics: list[str], where: str) -> dict[str, MetadataResponseTopic]:
    from odradek.common.errors import ErrorCode

    found = {each.name or "": each for each in (await cluster.metadata(topics)).topics}
    for topic in topics:
        code = found[topic].error_code
        if code:
            raise CliError(f"topic {topic} {where}: {ErrorCode(code).name}", code=NOT_FOUND)
    return found


async def _compared(
    cluster: Cluster,
    source: Cluster,
    here: MetadataResponseTopic,
    there: MetadataResponseTopic,
    below: int,
    *,
    is_compacted: bool,
) -> Rows:
    from odradek.client.groups import list_offsets

    name = here.name or ""
    keys = [(name, each.partition_index) for each in here.partitions]
    starts = await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
    rows: Rows = []
    for key in sorted(keys):
        agreed = await _agreed(cluster, source, here, there, key[1], below)
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
    from odradek.client.admin import ResourceType, describe_configs

    (found,) = await describe_configs(cluster, ResourceType.TOPIC, [topic])
    return any(entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in found.configs)


async def _check_source(cluster: Cluster, link: Link, topics: list[str], source_properties: dict[str, str]) -> None:
    """Raises CliError where a topic of the source is not one of its own any more, as it fails back to us itself."""
    from odradek.client.connection import RequestTimeoutError, UnreachableError
    from odradek.settings.links import promotions_of

    here = await _topics(cluster, topics, "here")
    try:
        async with cluster_at(Target(link.bootstrap_servers, source_properties))() as source:
            promoted = promotions_of(await _settings(source))
    except (UnreachableError, RequestTimeoutError) as error:
        raise CliError(
            f"the source {link.bootstrap_servers}: {error}; `odradek links failback` once more goes on",
            code=UNREACHABLE,
        ) from None
    for topic in topics:
        if topic not in promoted or promoted[topic].source_id != here[topic].topic_id:
            raise CliError(
                f"{topic} at {link.bootstrap_servers} is no topic of its own any more: give one of the two up with "
                f"`odradek links failover {link.name} {topic}`",
                code=FAILED,
            )


async def _agreed(
    cluster: Cluster,
    source: Cluster,
    here: MetadataResponseTopic,
    there: MetadataResponseTopic,
    number: int,
    below: int,
) -> Any:
    from odradek.client.epochs import epoch_end
    from odradek.client.groups import list_offsets
    from odradek.link.agreement import agree

    name = here.name or ""
    leaders = {side: _leader(topic, number) for side, topic in (("here", here), ("there", there))}

    async def source_end(asked: int) -> tuple[int, int]:
        return await epoch_end(source, name, number, asked, leader_id=leaders["there"])

    async def source_start() -> int:
        return (await list_offsets(source, {(name, number): EARLIEST}))[name, number]

    async def own_end(asked: int) -> tuple[int, int]:
        return await epoch_end(cluster, name, number, asked, leader_id=leaders["here"])

    return await agree(below, source_end, source_start, own_end)


def _leader(topic: MetadataResponseTopic, number: int) -> int:
    from odradek.common.errors import ApiError, ErrorCode

    leader = next((each.leader_id for each in topic.partitions if each.partition_index == number), -1)
    if leader < 0:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{number} has no leader")
    return leader


# Doing it


async def _begin(cluster: Cluster, changes: dict[str, str | None]) -> None:
    from odradek.client.admin import ConfigOperation, ResourceType, alter_configs

    operations = [
        (key, ConfigOperation.DELETE if text is None else ConfigOperation.SET, text) for key, text in changes.items()
    ]
    await alter_configs(cluster, ResourceType.BROKER, "", operations)


async def _cuts(cluster: Cluster, name: str, topics: list[str]) -> dict[PartitionKey, int]:
    """Wait until all replicas are cut; returns where. Raises CliError where nothing changes for too long."""
    loop, last, said = asyncio.get_running_loop(), None, ""
    while True:
        cuts, uncut = await _progress(cluster, name, topics)
        if not uncut:
            return cuts
        rows = [row for row in await _described(cluster, name, topics) if (row["topic"], row["partition"]) in uncut]
        reasons = [f"{row['topic']}-{row['partition']}: {row['reason']}" for row in rows if row["reason"]]
        now = (len(uncut), tuple(reasons))
        if last is None or now != last[0]:
            last = now, loop.time()
        reason = "; ".join(reasons) or f"{len(uncut)} partitions are not cut yet"
        if loop.time() - last[1] >= cluster.timeout_ms / 1000:
            raise CliError(
                f"{reason}. The brokers go on, and `odradek links failback` once more goes on with them", code=FAILED
            )
        if reasons and reason != said:
            note(reason)
            said = reason
        await asyncio.sleep(LOOK_S)


async def _progress(
    cluster: Cluster, name: str, topics: list[str]
) -> tuple[dict[PartitionKey, int], set[PartitionKey]]:
    """Where partitions were cut, and those that were not."""
    from odradek.common.errors import ApiError, ErrorCode

    async def attempt() -> Link:
        link = await _link(cluster, name)
        if any(topic not in link.mirrors for topic in topics):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker has not heard of the failback")
        return link

    link = await cluster.retried(attempt)
    found = await _topics(cluster, topics, "here")
    every = {(topic, each.partition_index) for topic in topics for each in found[topic].partitions}
    cuts = {(topic, number): offset for topic in topics for number, offset in link.mirrors[topic].cuts.items()}
    return cuts, every - cuts.keys()


async def _move_groups(cluster: Cluster, cuts: dict[PartitionKey, int]) -> Rows:
    """Set groups without members to the cut where they are further; those with members are left to these."""
    from odradek.client.groups import commit_offsets, committed_offsets, list_groups
    from odradek.common.errors import ApiError, ErrorCode

    rows: Rows = []
    for group in await list_groups(cluster):
        if group.group_type.lower() not in ("", "classic", "consumer"):
            continue
        committed = await committed_offsets(cluster, group.group_id)
        beyond = {key: cuts[key] for key, each in committed.items() if key in cuts and each.offset > cuts[key]}
        if not beyond:
            continue
        moved = True
        try:
            await commit_offsets(cluster, group.group_id, beyond)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            moved = False
        rows += [
            {
                "group": group.group_id,
                "topic": key[0],
                "partition": key[1],
                "offset": committed[key].offset,
                "to": offset,
                "moved": moved,
            }
            for key, offset in sorted(beyond.items())
        ]
    if not all(row["moved"] for row in rows):
        await asyncio.sleep(MEMBERS_S)
    return rows


async def _end(cluster: Cluster, name: str, topics: list[str]) -> None:
    from odradek.settings.links import MirrorState, mirror_key

    await _begin(cluster, {mirror_key(name, "mirror", topic): str(MirrorState.ACTIVE) for topic in topics})


async def _described(cluster: Cluster, name: str, topics: list[str]) -> Rows:
    from odradek.admin.link_facts import described

    found = await described(cluster, await _link(cluster, name))
    return [row for row in found["partitions"] if row["topic"] in topics]
