"""DeleteRecordsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, int64, string


class DeleteRecordsPartitionResult(Message):
    """Within DeleteRecordsResponse."""

    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Message):
    """Within DeleteRecordsResponse."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


class DeleteRecordsResponse(Message, kind="response", key=21, versions="0-2", flexible="2+"):
    """Response of API 21, versions 0-2, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
