"""`odradek links promote` and `failover`: mirrors become topics; what may be missing is said before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderPartition
    from odradek.settings.links import Link

Rows = list[dict[str, Any]]
_SHOWN = ("topic", "partition", "end", "source_end", "missing", "reason")


def chosen(link: Link, topics: list[str]) -> list[str]:
    """The mirrors that are meant: all where none is named. What was promoted before is left out. Raises CliError."""
    for topic in topics:
        if topic not in link.mirrors and topic not in link.promoted:
            raise CliError(f"{link.name} does not mirror {topic}", code=NOT_FOUND)
    return [topic for topic in sorted(link.mirrors) if not topics or topic in topics]


async def missing(cluster: Cluster, link: Link, topics: list[str], *, leaves_out: bool) -> Rows:
    """Of each partition, where it ends here, where the source ended when it was last heard of, and how many offsets are
    between them: None where that is not known.

    Args:
        leaves_out: mirrors that were not made yet have no rows; there is nothing to promote.
    Raises:
        CliError: there is one, and none is to be left out.
    """
    from odradek.cli.link_state import described

    rows = [row for row in (await described(cluster, link))["partitions"] if row["topic"] in topics]
    for row in rows:
        if row["partition"] < 0 and not leaves_out:
            raise CliError(f"{row['topic']} is not here yet: the source was never reached", code=USAGE)
    return [{**row, "missing": row["lag"]} for row in rows if row["partition"] >= 0]


def check_reached(rows: Rows) -> None:
    """Whether the source answers for all partitions. Raises CliError."""
    for row in rows:
        if row["reason"] or row["missing"] is None:
            reason = row["reason"] or "no broker has heard of the source yet"
            raise CliError(
                f"{row['topic']}-{row['partition']}: {reason}; `odradek links failover` promotes without the source",
                code=USAGE,
            )


def show_missing(rows: Rows) -> None:
    """Print it for a person."""
    headings = [name.upper().replace("_", "-") for name in _SHOWN]
    print_table(headings, [["-" if row[name] is None else str(row[name]) for name in _SHOWN] for row in rows])
    say("Missing counts to where the source ended when it was last heard of; what it got later is not known here.")


def question(rows: Rows, topics: list[str]) -> str:
    """What is asked before it is done."""
    count = sum(row["missing"] or 0 for row in rows)
    unknown = sum(row["missing"] is None for row in rows)
    what = f"{count} offsets of the source are not here" if count else "nothing that is known of is missing"
    if unknown:
        what += f", of {unknown} partitions it is not known"
    return f"make {', '.join(topics)} topics of this cluster for good? ({what})"


async def promote(cluster: Cluster, link: Link, topics: list[str]) -> None:
    """Make them topics, and wait until all leaders know it. Raises ApiError."""
    from odradek.client.admin import ConfigOperation, ResourceType, alter_configs, describe_configs
    from odradek.settings.links import MirrorState, ended_mirrors, mirror_key

    changes = [
        (mirror_key(link.name, "mirror", topic), ConfigOperation.SET, str(MirrorState.PROMOTED)) for topic in topics
    ]
    await alter_configs(cluster, ResourceType.BROKER, "", changes)

    async def first_epochs() -> dict[str, int]:
        from odradek.common.errors import ApiError, ErrorCode

        (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
        ended = ended_mirrors({entry.name: entry.value or "" for entry in found.configs})
        if not ended.keys() >= set(topics):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker has not heard of the promotion")
        return {topic: ended[topic] for topic in topics}

    await _await_leaders(cluster, await cluster.retried(first_epochs))


async def _await_leaders(cluster: Cluster, first_epochs: dict[str, int]) -> None:
    """Return when each leader leads in an epoch of this cluster's own."""
    from odradek.client.cluster import check
    from odradek.common.errors import ApiError, ErrorCode
    from odradek.protocol.messages import offset_for_leader_epoch_request as asked
    from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

    async def ask(leader: int, topic: str, partition: OffsetForLeaderPartition) -> None:
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
