"""The end of mirrors: they become topics of this cluster; what may be missing is known before."""

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
    """The mirrors that are meant: all where none is named. What was promoted before is left out.

    Args:
        is_reached: the source must answer, as for `promote`. A failback is then ended by itself alone; without the
            source, only where its topic is named.
    Raises:
        UnknownLinkError: a topic never was a mirror of the link.
        PlanError: a topic is being failed back.
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
    """Of each partition, where it ends here, where the source ended when it was last heard of, and how many offsets are
    between them: None where that is not known.

    Args:
        leaves_out: mirrors that were not made yet have no rows; there is nothing to promote.
    Raises:
        PlanError: there is one, and none is to be left out.
    """
    rows = [row for row in (await described(cluster, link))["partitions"] if row["topic"] in topics]
    for row in rows:
        if row["partition"] < 0 and not leaves_out:
            raise PlanError(f"{row['topic']} is not here yet: the source was never reached")
    return [{**row, "missing": row["lag"]} for row in rows if row["partition"] >= 0]


def check_reached(rows: Rows) -> None:
    """Whether the source answers for all partitions. Raises PlanError."""
    for row in rows:
        if row["reason"] or row["missing"] is None:
            reason = row["reason"] or "no broker has heard of the source yet"
            where = f"{row['topic']}-{row['partition']}"
            raise PlanError(f"{where}: {reason}; `odradek links failover` promotes without the source")


def what_is_missing(rows: Rows) -> str:
    """How much of the source is not here, in words."""
    count = sum(row["missing"] or 0 for row in rows)
    unknown = sum(row["missing"] is None for row in rows)
    what = f"{count:,} offsets of the source are not here" if count else "nothing that is known of is missing"
    if unknown:
        what += f", of {unknown} partitions it is not known"
    return what


async def promote(cluster: Cluster, link: Link, topics: list[str]) -> None:
    """Make them topics, and wait until all leaders know it. Raises ApiError."""
    await set_mirror_states(cluster, link.name, topics, MirrorState.PROMOTED)

    async def first_epochs() -> dict[str, int]:
        (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
        ended = ended_mirrors({entry.name: entry.value or "" for entry in found.configs})
        if not ended.keys() >= set(topics):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker has not heard of the promotion")
        return {topic: ended[topic] for topic in topics}

    await _await_leaders(cluster, await cluster.retried(first_epochs))


async def _await_leaders(cluster: Cluster, first_epochs: dict[str, int]) -> None:
    """Return when each leader leads in an epoch of this cluster's own."""

    async def ask(leader: int, topic: str, partition: asked.OffsetForLeaderPartition) -> None:
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
                await ask(each.leader_id, name, partition)

    await cluster.retried(attempt)
