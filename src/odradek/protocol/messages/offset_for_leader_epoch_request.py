"""OffsetForLeaderEpochRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string


class OffsetForLeaderPartition(Message):
    """Within OffsetForLeaderEpochRequest."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Message):
    """Within OffsetForLeaderEpochRequest."""

    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Message, kind="request", key=23, versions="2-4", flexible="4+"):
    """Request of API 23, versions 2-4, flexible 4+; listeners: broker."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")
