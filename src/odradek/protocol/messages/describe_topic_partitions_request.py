"""DescribeTopicPartitionsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string, struct


class TopicRequest(Message):
    """Within DescribeTopicPartitionsRequest."""

    name: str = string("0+")


class Cursor(Message):
    """Within DescribeTopicPartitionsRequest."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Message, kind="request", key=75, versions="0", flexible="0+"):
    """Request of API 75, versions 0, flexible 0+; listeners: broker."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")
