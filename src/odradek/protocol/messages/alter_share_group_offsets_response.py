"""AlterShareGroupOffsetsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, string, uuid


class AlterShareGroupOffsetsResponsePartition(Message):
    """Within AlterShareGroupOffsetsResponse."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class AlterShareGroupOffsetsResponseTopic(Message):
    """Within AlterShareGroupOffsetsResponse."""

    topic_name: str = string("0+")
    topic_id: UUID = uuid("0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition, "0+")


class AlterShareGroupOffsetsResponse(Message, kind="response", key=91, versions="0", flexible="0+"):
    """Response of API 91, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic, "0+")
