"""AlterReplicaLogDirsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class AlterReplicaLogDirPartitionResult(Message):
    """Within AlterReplicaLogDirsResponse."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Message):
    """Within AlterReplicaLogDirsResponse."""

    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, "0+")


class AlterReplicaLogDirsResponse(Message, kind="response", key=34, versions="1-2", flexible="2+"):
    """Response of API 34, versions 1-2, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")
