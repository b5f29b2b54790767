"""EndQuorumEpochRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uint16, uuid


class ReplicaInfo(Message):
    """Within EndQuorumEpochRequest."""

    candidate_id: int = int32("1+")
    candidate_directory_id: UUID = uuid("1+")


class PartitionData(Message):
    """Within EndQuorumEpochRequest."""

    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: list[int] = array("int32", "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Message):
    """Within EndQuorumEpochRequest."""

    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class LeaderEndpoint(Message):
    """Within EndQuorumEpochRequest."""

    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Message, kind="request", key=54, versions="0-1", flexible="1+"):
    """Request of API 54, versions 0-1, flexible 1+; listeners: controller."""

    cluster_id: str | None = string("0+", default=None, nullable="0+")
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)
