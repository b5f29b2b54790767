"""DescribeProducersRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class TopicRequest(Message):
    """Within DescribeProducersRequest."""

    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")


class DescribeProducersRequest(Message, kind="request", key=61, versions="0", flexible="0+"):
    """Request of API 61, versions 0, flexible 0+; listeners: broker."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")
