"""DescribeShareGroupOffsetsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class DescribeShareGroupOffsetsRequestTopic(Message):
    """Within DescribeShareGroupOffsetsRequest."""

    topic_name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class DescribeShareGroupOffsetsRequestGroup(Message):
    """Within DescribeShareGroupOffsetsRequest."""

    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, kind="request", key=90, versions="0-1", flexible="0+"):
    """Request of API 90, versions 0-1, flexible 0+; listeners: broker."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup, "0+")
