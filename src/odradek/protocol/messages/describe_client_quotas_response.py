"""DescribeClientQuotasResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, float64, int16, int32, string


class EntityData(Message):
    """Within DescribeClientQuotasResponse."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ValueData(Message):
    """Within DescribeClientQuotasResponse."""

    key: str = string("0+")
    value: float = float64("0+")


class EntryData(Message):
    """Within DescribeClientQuotasResponse."""

    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


class DescribeClientQuotasResponse(Message, kind="response", key=48, versions="0-1", flexible="1+"):
    """Response of API 48, versions 0-1, flexible 1+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")
