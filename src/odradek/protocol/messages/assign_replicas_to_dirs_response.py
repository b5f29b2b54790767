"""AssignReplicasToDirsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, uuid


class PartitionData(Message):
    """Within AssignReplicasToDirsResponse."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TopicData(Message):
    """Within AssignReplicasToDirsResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DirectoryData(Message):
    """Within AssignReplicasToDirsResponse."""

    id: UUID = uuid("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class AssignReplicasToDirsResponse(Message, kind="response", key=73, versions="0", flexible="0+"):
    """Response of API 73, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[DirectoryData] = array(DirectoryData, "0+")
