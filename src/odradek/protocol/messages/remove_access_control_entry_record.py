"""RemoveAccessControlEntryRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, uuid


class RemoveAccessControlEntryRecord(Message, kind="metadata", key=19, versions="0", flexible="0+"):
    """Record of the metadata log, type 19, versions 0, flexible 0+."""

    id: UUID = uuid("0+")
