"""FetchSnapshotRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, int64, string, struct, uuid


class SnapshotId(Message):
    """Within FetchSnapshotRequest."""

    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class PartitionSnapshot(Message):
    """Within FetchSnapshotRequest."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: UUID = uuid("1+", tag=0, ignorable=True)


class TopicSnapshot(Message):
    """Within FetchSnapshotRequest."""

    name: str = string("0+")
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot, "0+")


class FetchSnapshotRequest(Message, kind="request", key=59, versions="0-1", flexible="0+"):
    """Request of API 59, versions 0-1, flexible 0+; listeners: controller."""

    cluster_id: str | None = string("0+", default=None, nullable="0+", tag=0)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2147483647)
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")
