"""BeginQuorumEpochRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uint16, uuid


class PartitionData(Message):
    """Within BeginQuorumEpochRequest."""

    partition_index: int = int32("0+")
    voter_directory_id: UUID = uuid("1+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class TopicData(Message):
    """Within BeginQuorumEpochRequest."""

    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class LeaderEndpoint(Message):
    """Within BeginQuorumEpochRequest."""

    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Message, kind="request", key=53, versions="0-1", flexible="1+"):
    """Request of API 53, versions 0-1, flexible 1+; listeners: controller."""

    cluster_id: str | None = string("0+", default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)
