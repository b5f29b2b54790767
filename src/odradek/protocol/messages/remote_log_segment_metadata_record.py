"""RemoteLogSegmentMetadataRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, binary, boolean, int8, int32, int64, string, struct, uuid


class TopicIdPartitionEntry(Message):
    """Within RemoteLogSegmentMetadataRecord."""

    name: str = string("0+")
    id: UUID = uuid("0+")
    partition: int = int32("0+")


class RemoteLogSegmentIdEntry(Message):
    """Within RemoteLogSegmentMetadataRecord."""

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, "0+")
    id: UUID = uuid("0+")


class SegmentLeaderEpochEntry(Message):
    """Within RemoteLogSegmentMetadataRecord."""

    leader_epoch: int = int32("0+")
    offset: int = int64("0+")


class RemoteLogSegmentMetadataRecord(Message, kind="metadata", key=0, versions="0", flexible="0+"):
    """Record of the metadata log, type 0, versions 0, flexible 0+."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry, "0+")
    start_offset: int = int64("0+")
    end_offset: int = int64("0+")
    broker_id: int = int32("0+")
    max_timestamp_ms: int = int64("0+")
    event_timestamp_ms: int = int64("0+")
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry, "0+")
    segment_size_in_bytes: int = int32("0+")
    custom_metadata: bytes | None = binary("0+", default=None, nullable="0+")
    remote_log_segment_state: int = int8("0+")
    txn_index_empty: bool = boolean("0+", tag=0)
