"""ClientQuotaRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, float64, string


class EntityData(Message):
    """Within ClientQuotaRecord."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Message, kind="metadata", key=14, versions="0", flexible="0+"):
    """Record of the metadata log, type 14, versions 0, flexible 0+."""

    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")
