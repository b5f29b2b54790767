"""DescribeTopicPartitionsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int16, int32, string, struct, uuid


class DescribeTopicPartitionsResponsePartition(Message):
    """Within DescribeTopicPartitionsResponse."""

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32", "0+")
    isr_nodes: list[int] = array("int32", "0+")
    eligible_leader_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = array("int32", "0+", default=None, nullable="0+")
    offline_replicas: list[int] = array("int32", "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Message):
    """Within DescribeTopicPartitionsResponse."""

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: UUID = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class Cursor(Message):
    """Within DescribeTopicPartitionsResponse."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsResponse(Message, kind="response", key=75, versions="0", flexible="0+"):
    """Response of API 75, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct(Cursor, "0+", default=None, nullable="0+")
