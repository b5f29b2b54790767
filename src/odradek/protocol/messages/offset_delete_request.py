"""OffsetDeleteRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string


class OffsetDeleteRequestPartition(Message):
    """Within OffsetDeleteRequest."""

    partition_index: int = int32("0+")


class OffsetDeleteRequestTopic(Message):
    """Within OffsetDeleteRequest."""

    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


class OffsetDeleteRequest(Message, kind="request", key=47, versions="0"):
    """Request of API 47, versions 0, never flexible; listeners: broker."""

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")
