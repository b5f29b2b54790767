"""AlterPartitionResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int16, int32, uuid


class PartitionData(Message):
    """Within AlterPartitionResponse."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array("int32", "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class TopicData(Message):
    """Within AlterPartitionResponse."""

    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


class AlterPartitionResponse(Message, kind="response", key=56, versions="2-3", flexible="0+"):
    """Response of API 56, versions 2-3, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")
