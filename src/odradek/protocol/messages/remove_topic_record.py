"""RemoveTopicRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, uuid


class RemoveTopicRecord(Message, kind="metadata", key=9, versions="0", flexible="0+"):
    """Record of the metadata log, type 9, versions 0, flexible 0+."""

    topic_id: UUID = uuid("0+")
