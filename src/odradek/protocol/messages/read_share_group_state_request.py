"""ReadShareGroupStateRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uuid


class PartitionData(Message):
    """Within ReadShareGroupStateRequest."""

    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Message):
    """Within ReadShareGroupStateRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateRequest(Message, kind="request", key=84, versions="0", flexible="0+"):
    """Request of API 84, versions 0, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    topics: list[ReadStateData] = array(ReadStateData, "0+")
