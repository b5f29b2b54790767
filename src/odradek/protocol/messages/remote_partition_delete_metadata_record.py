"""RemotePartitionDeleteMetadataRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, int8, int32, int64, string, struct, uuid


class TopicIdPartitionEntry(Message):
    """Within RemotePartitionDeleteMetadataRecord."""

    name: str = string("0+")
    id: UUID = uuid("0+")
    partition: int = int32("0+")


class RemotePartitionDeleteMetadataRecord(Message, kind="metadata", key=2, versions="0", flexible="0+"):
    """Record of the metadata log, type 2, versions 0, flexible 0+."""

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, "0+")
    broker_id: int = int32("0+")
    event_timestamp_ms: int = int64("0+")
    remote_partition_delete_state: int = int8("0+")
