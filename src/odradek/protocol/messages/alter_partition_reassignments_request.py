"""AlterPartitionReassignmentsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int32, string


class ReassignablePartition(Message):
    """Within AlterPartitionReassignmentsRequest."""

    partition_index: int = int32("0+")
    replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+")


class ReassignableTopic(Message):
    """Within AlterPartitionReassignmentsRequest."""

    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Message, kind="request", key=45, versions="0-1", flexible="0+"):
    """Request of API 45, versions 0-1, flexible 0+; listeners: broker, controller."""

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")
