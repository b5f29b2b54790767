"""Ends mirrors: promotes them to topics of this cluster, after it has reported the records that may be missing."""

from __future__ import annotations

from odradek.admin.link_facts import Row, UnknownLinkError, described, set_mirror_states
from odradek.admin.plan import PlanError
from odradek.client.admin import ResourceType, describe_configs
from odradek.client.cluster import Cluster, check
from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages import offset_for_leader_epoch_request as asked
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from odradek.settings.links import Link, MirrorState, ended_mirrors

Rows = list[Row]


def chosen(link: Link, topics: list[str], *, is_reached: bool) -> list[str]:
    """The selected mirrors: all if `topics` is empty. Promoted topics are left out.

    Args:
        is_reached: the source must respond, as for `promote`; then topics in a failback are left out. Without the
            source they are included if they are named.
    Raises:
        UnknownLinkError: a topic never was a mirror of the link.
        PlanError: a topic is in a failback.
    """
    for topic in topics:
        if topic not in link.mirrors and topic not in link.promoted:
            raise UnknownLinkError(f"{link.name} does not mirror {topic}")
        if is_reached and topic in link.mirrors and link.mirrors[topic].state is MirrorState.FAILBACK:
            raise PlanError(
                f"{topic} is being failed back: `odradek links failback` goes on with it, and `odradek links failover` "
                f"with its name gives it up"
            )
    return [
        topic
        for topic, mirror in sorted(link.mirrors.items())
        if topic in topics or (not topics and mirror.state is not MirrorState.FAILBACK)
    ]


async def missing(cluster: Cluster, link: Link, topics: list[str], *, leaves_out: bool) -> Rows:
    """A row for each partition: its end offset here, that of the source, and the number of missing offsets.

    The offset of the source is the last known one; it and the number are None if unknown.

    Args:
        leaves_out: skip mirrors whose topic is not created yet.
    Raises:
        PlanError: there is such a mirror, and `leaves_out` is false.
    """
    rows = [row for row in (await described(cluster, link))["partitions"] if row["topic"] in topics]
    for row in rows:
        if row["partition"] < 0 and not leaves_out:
            raise PlanError(f"{row['topic']} is not here yet: the source was never reached")
    return [{**row, "missing": row["lag"]} for row in rows if row["partition"] >= 0]


def check_reached(rows: Rows) -> None:
    """Check that the source responds for all partitions. Raises PlanError."""
    for row in rows:
        if row["reason"] or row["missing"] is None:
            reason = row["reason"] or "no broker has reached the source yet"
            where = f"{row['topic']}-{row['partition']}"
            raise PlanError(f"{where}: {reason}; `odradek links failover` promotes without the source")


def missing_text(rows: Rows) -> str:
    """The missing offsets as text."""
    count = sum(row["missing"] or 0 for row in rows)
    unknown = sum(row["missing"] is None for row in rows)
    what = f"{count:,} offsets of the source are missing here" if count else "no missing offsets are known"
    if unknown:
        what += f"; unknown for {unknown} partitions"
    return what


async def promote(cluster: Cluster, link: Link, topics: list[str]) -> None:
    """Promote the mirrors, and wait until all their leaders have applied it. Raises ApiError."""
    await set_mirror_states(cluster, link.name, topics, MirrorState.PROMOTED)

    async def first_epochs() -> dict[str, int]:
        (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
        ended = ended_mirrors({entry.name: entry.value or "" for entry in found.configs})
        if not ended.keys() >= set(topics):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker has not applied the promotion yet")
        return {topic: ended[topic] for topic in topics}

    await _await_leaders(cluster, await cluster.retried(first_epochs))


async def _await_leaders(cluster: Cluster, first_epochs: dict[str, int]) -> None:
    """Wait until each leader leads in an epoch of this cluster."""

    async def send(leader: int, topic: str, partition: asked.OffsetForLeaderPartition) -> None:
        request = asked.OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[asked.OffsetForLeaderTopic(topic=topic, partitions=[partition])]
        )
        for each in (await cluster.request(request, OffsetForLeaderEpochResponse, node_id=leader)).topics:
            for answer in each.partitions:
                check(answer.error_code, f"{topic}-{answer.partition}")

    async def attempt() -> None:
        for topic in (await cluster.metadata(sorted(first_epochs))).topics:
            first, name = first_epochs[topic.name or ""], topic.name or ""
            for each in topic.partitions:
                if each.leader_id < 0:
                    continue  # the next leader ends the mirror
                if each.leader_epoch < first:
                    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} is not promoted yet")
                partition = asked.OffsetForLeaderPartition(
                    partition=each.partition_index, current_leader_epoch=each.leader_epoch, leader_epoch=first
                )
                await send(each.leader_id, name, partition)

    await cluster.retried(attempt)
