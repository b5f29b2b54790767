"""ShareGroupStatePartitionMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, string, uuid


class TopicPartitionsInfo(Message):
    """Within ShareGroupStatePartitionMetadataValue."""

    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class TopicInfo(Message):
    """Within ShareGroupStatePartitionMetadataValue."""

    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")


class ShareGroupStatePartitionMetadataValue(Message, kind="coordinator-value", key=15, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 15, versions 0, flexible 0+."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    deleting_topics: list[TopicInfo] = array(TopicInfo, "0+")
