"""TopicRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, string, uuid


class TopicRecord(Message, kind="metadata", key=2, versions="0", flexible="0+"):
    """Record of the metadata log, type 2, versions 0, flexible 0+."""

    name: str = string("0+")
    topic_id: UUID = uuid("0+")
