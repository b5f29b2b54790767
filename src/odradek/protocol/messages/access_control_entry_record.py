"""AccessControlEntryRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, int8, string, uuid


class AccessControlEntryRecord(Message, kind="metadata", key=18, versions="0", flexible="0+"):
    """Record of the metadata log, type 18, versions 0, flexible 0+."""

    id: UUID = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")
