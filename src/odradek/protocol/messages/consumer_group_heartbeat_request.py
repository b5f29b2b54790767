"""ConsumerGroupHeartbeatRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uuid


class TopicPartitions(Message):
    """Within ConsumerGroupHeartbeatRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ConsumerGroupHeartbeatRequest(Message, kind="request", key=68, versions="0-1", flexible="0+"):
    """Request of API 68, versions 0-1, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", default=None, nullable="0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array("string", "0+", default=None, nullable="0+")
    subscribed_topic_regex: str | None = string("1+", default=None, nullable="1+")
    server_assignor: str | None = string("0+", default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", default=None, nullable="0+")
