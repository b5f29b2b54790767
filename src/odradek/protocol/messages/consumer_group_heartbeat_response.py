"""ConsumerGroupHeartbeatResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, string, struct, uuid


class TopicPartitions(Message):
    """Within ConsumerGroupHeartbeatResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class Assignment(Message):
    """Within ConsumerGroupHeartbeatResponse."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupHeartbeatResponse(Message, kind="response", key=68, versions="0-1", flexible="0+"):
    """Response of API 68, versions 0-1, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", default=None, nullable="0+")
