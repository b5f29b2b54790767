"""ReadShareGroupStateSummaryResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, int64, string, uuid


class PartitionResult(Message):
    """Within ReadShareGroupStateSummaryResponse."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Message):
    """Within ReadShareGroupStateSummaryResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateSummaryResponse(Message, kind="response", key=87, versions="0-1", flexible="0+"):
    """Response of API 87, versions 0-1, flexible 0+."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, "0+")
