"""ClearElrRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class ClearElrRecord(Message, kind="metadata", key=28, versions="0", flexible="0+"):
    """Record of the metadata log, type 28, versions 0, flexible 0+."""

    topic_name: str = string("0+")
