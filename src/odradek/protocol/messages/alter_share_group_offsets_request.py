"""AlterShareGroupOffsetsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, int64, string


class AlterShareGroupOffsetsRequestPartition(Message):
    """Within AlterShareGroupOffsetsRequest."""

    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


class AlterShareGroupOffsetsRequestTopic(Message):
    """Within AlterShareGroupOffsetsRequest."""

    topic_name: str = string("0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition, "0+")


class AlterShareGroupOffsetsRequest(Message, kind="request", key=91, versions="0", flexible="0+"):
    """Request of API 91, versions 0, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic, "0+")
