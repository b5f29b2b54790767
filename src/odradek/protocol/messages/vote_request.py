"""VoteRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int32, int64, string, uuid


class PartitionData(Message):
    """Within VoteRequest."""

    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: UUID = uuid("1+", ignorable=True)
    voter_directory_id: UUID = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class TopicData(Message):
    """Within VoteRequest."""

    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class VoteRequest(Message, kind="request", key=52, versions="0-2", flexible="0+"):
    """Request of API 52, versions 0-2, flexible 0+; listeners: controller."""

    cluster_id: str | None = string("0+", default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData, "0+")
