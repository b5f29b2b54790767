"""The compaction state of topics, requested from the leaders of their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.common.errors import OdradekError

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.log.compaction.status import CompactionState
    from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse
    from odradek.protocol.messages.metadata_response import MetadataResponseTopic


async def request_states(
    cluster: Cluster, topics: Sequence[MetadataResponseTopic]
) -> dict[tuple[str, int], dict[str, Any]]:
    """The state of each partition from its leader; none if the leader does not respond or is not Odradek's."""
    from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
    from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse

    found: dict[tuple[str, int], dict[str, Any]] = {}
    for broker_id, wanted in sorted(_led(topics).items()):
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in wanted.items()]
        )
        try:
            response = await cluster.request(request, DescribeLogDirsResponse, node_id=broker_id)
        except OdradekError:
            continue  # the command describes the topic; a broker that refuses leaves a column empty
        found |= _reported(response)
    return found


def _led(topics: Sequence[MetadataResponseTopic]) -> dict[int, dict[str, list[int]]]:
    """The partitions by leader and topic."""
    led: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                of_broker = led.setdefault(partition.leader_id, {})
                of_broker.setdefault(topic.name or "", []).append(partition.partition_index)
    return led


def _reported(response: DescribeLogDirsResponse) -> dict[tuple[str, int], dict[str, Any]]:
    from odradek.log.compaction.status import read_tagged

    states = {
        (topic.name, partition.partition_index): read_tagged(partition.unknown_tagged_fields)
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
    }
    return {key: {"compaction": _as_json(state)} for key, state in states.items() if state is not None}


def _as_json(state: CompactionState) -> dict[str, Any]:
    return {
        "cleaned_offset": state.cleaned_offset,
        "clean_bytes": state.clean_bytes,
        "dirty_bytes": state.dirty_bytes,
        "dirty_ratio": round(state.dirty_ratio, 4),
        "running": state.running,
        "groups_done": state.groups_done,
        "groups": state.groups,
        "uncleanable": state.uncleanable,
    }


def compaction_text(state: dict[str, Any] | None) -> str:
    """The state as a table cell."""
    if state is None:
        return "-"
    text = f"to {state['cleaned_offset']}, {state['dirty_ratio']:.0%} dirty"
    if state["uncleanable"]:
        return f"{text}, cannot be cleaned"
    return f"{text}, {state['groups_done']} of {state['groups']} done" if state["running"] else text
