"""DescribeLogDirsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class DescribableLogDirTopic(Message):
    """Within DescribeLogDirsRequest."""

    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class DescribeLogDirsRequest(Message, kind="request", key=35, versions="1-5", flexible="2+"):
    """Request of API 35, versions 1-5, flexible 2+; listeners: broker."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")
