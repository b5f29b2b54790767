"""AlterClientQuotasResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class EntityData(Message):
    """Within AlterClientQuotasResponse."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class EntryData(Message):
    """Within AlterClientQuotasResponse."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Message, kind="response", key=49, versions="0-1", flexible="1+"):
    """Response of API 49, versions 0-1, flexible 1+."""

    throttle_time_ms: int = int32("0+")
    entries: list[EntryData] = array(EntryData, "0+")
