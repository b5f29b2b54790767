"""ListPartitionReassignmentsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string


class ListPartitionReassignmentsTopics(Message):
    """Within ListPartitionReassignmentsRequest."""

    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")


class ListPartitionReassignmentsRequest(Message, kind="request", key=46, versions="0", flexible="0+"):
    """Request of API 46, versions 0, flexible 0+; listeners: broker, controller."""

    timeout_ms: int = int32("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", default=None, nullable="0+"
    )
