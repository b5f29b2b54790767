"""ConfigRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int8, string


class ConfigRecord(Message, kind="metadata", key=4, versions="0", flexible="0+"):
    """Record of the metadata log, type 4, versions 0, flexible 0+."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
