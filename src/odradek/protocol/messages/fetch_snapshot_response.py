"""FetchSnapshotResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, batches, int16, int32, int64, string, struct, uint16
from odradek.protocol.records_field import Records


class SnapshotId(Message):
    """Within FetchSnapshotResponse."""

    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class LeaderIdAndEpoch(Message):
    """Within FetchSnapshotResponse."""

    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class PartitionSnapshot(Message):
    """Within FetchSnapshotResponse."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0)
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Records = batches("0+")


class TopicSnapshot(Message):
    """Within FetchSnapshotResponse."""

    name: str = string("0+")
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot, "0+")


class NodeEndpoint(Message):
    """Within FetchSnapshotResponse."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, kind="response", key=59, versions="0-1", flexible="0+"):
    """Response of API 59, versions 0-1, flexible 0+."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
