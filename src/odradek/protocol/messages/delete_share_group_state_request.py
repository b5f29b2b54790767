"""DeleteShareGroupStateRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uuid


class PartitionData(Message):
    """Within DeleteShareGroupStateRequest."""

    partition: int = int32("0+")


class DeleteStateData(Message):
    """Within DeleteShareGroupStateRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Message, kind="request", key=86, versions="0", flexible="0+"):
    """Request of API 86, versions 0, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")
