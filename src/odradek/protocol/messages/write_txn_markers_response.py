"""WriteTxnMarkersResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, int64, string


class WritableTxnMarkerPartitionResult(Message):
    """Within WriteTxnMarkersResponse."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Message):
    """Within WriteTxnMarkersResponse."""

    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


class WritableTxnMarkerResult(Message):
    """Within WriteTxnMarkersResponse."""

    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


class WriteTxnMarkersResponse(Message, kind="response", key=27, versions="1-2", flexible="1+"):
    """Response of API 27, versions 1-2, flexible 1+."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")
