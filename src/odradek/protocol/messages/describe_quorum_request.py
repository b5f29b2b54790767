"""DescribeQuorumRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string


class PartitionData(Message):
    """Within DescribeQuorumRequest."""

    partition_index: int = int32("0+")


class TopicData(Message):
    """Within DescribeQuorumRequest."""

    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DescribeQuorumRequest(Message, kind="request", key=55, versions="0-2", flexible="0+"):
    """Request of API 55, versions 0-2, flexible 0+; listeners: broker, controller."""

    topics: list[TopicData] = array(TopicData, "0+")
