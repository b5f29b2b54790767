"""AssignReplicasToDirsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, int64, uuid


class PartitionData(Message):
    """Within AssignReplicasToDirsRequest."""

    partition_index: int = int32("0+")


class TopicData(Message):
    """Within AssignReplicasToDirsRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DirectoryData(Message):
    """Within AssignReplicasToDirsRequest."""

    id: UUID = uuid("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class AssignReplicasToDirsRequest(Message, kind="request", key=73, versions="0", flexible="0+"):
    """Request of API 73, versions 0, flexible 0+; listeners: controller."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[DirectoryData] = array(DirectoryData, "0+")
