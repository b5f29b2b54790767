"""ConsumerGroupPartitionMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uuid


class PartitionMetadata(Message):
    """Within ConsumerGroupPartitionMetadataValue."""

    partition: int = int32("0+")
    racks: list[str] = array("string", "0+")


class TopicMetadata(Message):
    """Within ConsumerGroupPartitionMetadataValue."""

    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, kind="coordinator-value", key=4, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 4, versions 0, flexible 0+."""

    topics: list[TopicMetadata] = array(TopicMetadata, "0+")
