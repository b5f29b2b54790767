"""ElectLeadersRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int8, int32, string


class TopicPartitions(Message):
    """Within ElectLeadersRequest."""

    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class ElectLeadersRequest(Message, kind="request", key=43, versions="0-2", flexible="2+"):
    """Request of API 43, versions 0-2, flexible 2+; listeners: broker, controller."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)
