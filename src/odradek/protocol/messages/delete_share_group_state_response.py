"""DeleteShareGroupStateResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, string, uuid


class PartitionResult(Message):
    """Within DeleteShareGroupStateResponse."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class DeleteStateResult(Message):
    """Within DeleteShareGroupStateResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Message, kind="response", key=86, versions="0", flexible="0+"):
    """Response of API 86, versions 0, flexible 0+."""

    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")
