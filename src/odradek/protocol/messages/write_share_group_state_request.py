"""WriteShareGroupStateRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int16, int32, int64, string, uuid


class StateBatch(Message):
    """Within WriteShareGroupStateRequest."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionData(Message):
    """Within WriteShareGroupStateRequest."""

    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Message):
    """Within WriteShareGroupStateRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(Message, kind="request", key=85, versions="0-1", flexible="0+"):
    """Request of API 85, versions 0-1, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")
