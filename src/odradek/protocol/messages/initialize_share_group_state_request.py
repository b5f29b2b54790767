"""InitializeShareGroupStateRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, int64, string, uuid


class PartitionData(Message):
    """Within InitializeShareGroupStateRequest."""

    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Message):
    """Within InitializeShareGroupStateRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(Message, kind="request", key=83, versions="0", flexible="0+"):
    """Request of API 83, versions 0, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")
