"""RemoteLogSegmentMetadataUpdateRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, binary, int8, int32, int64, string, struct, uuid


class TopicIdPartitionEntry(Message):
    """Within RemoteLogSegmentMetadataUpdateRecord."""

    name: str = string("0+")
    id: UUID = uuid("0+")
    partition: int = int32("0+")


class RemoteLogSegmentIdEntry(Message):
    """Within RemoteLogSegmentMetadataUpdateRecord."""

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, "0+")
    id: UUID = uuid("0+")


class RemoteLogSegmentMetadataUpdateRecord(Message, kind="metadata", key=1, versions="0", flexible="0+"):
    """Record of the metadata log, type 1, versions 0, flexible 0+."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry, "0+")
    broker_id: int = int32("0+")
    event_timestamp_ms: int = int64("0+")
    custom_metadata: bytes | None = binary("0+", default=None, nullable="0+")
    remote_log_segment_state: int = int8("0+")
