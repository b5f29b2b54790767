"""DeleteRecordsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, int64, string


class DeleteRecordsPartition(Message):
    """Within DeleteRecordsRequest."""

    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Message):
    """Within DeleteRecordsRequest."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Message, kind="request", key=21, versions="0-2", flexible="2+"):
    """Request of API 21, versions 0-2, flexible 2+; listeners: broker."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")
