"""AlterClientQuotasRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, float64, string


class EntityData(Message):
    """Within AlterClientQuotasRequest."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class OpData(Message):
    """Within AlterClientQuotasRequest."""

    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class EntryData(Message):
    """Within AlterClientQuotasRequest."""

    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Message, kind="request", key=49, versions="0-1", flexible="1+"):
    """Request of API 49, versions 0-1, flexible 1+; listeners: broker, controller."""

    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")
