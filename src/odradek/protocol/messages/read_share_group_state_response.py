"""ReadShareGroupStateResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int16, int32, int64, string, uuid


class StateBatch(Message):
    """Within ReadShareGroupStateResponse."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionResult(Message):
    """Within ReadShareGroupStateResponse."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ReadStateResult(Message):
    """Within ReadShareGroupStateResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateResponse(Message, kind="response", key=84, versions="0", flexible="0+"):
    """Response of API 84, versions 0, flexible 0+."""

    results: list[ReadStateResult] = array(ReadStateResult, "0+")
