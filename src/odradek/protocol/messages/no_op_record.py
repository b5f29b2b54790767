"""NoOpRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message


class NoOpRecord(Message, kind="metadata", key=20, versions="0", flexible="0+"):
    """Record of the metadata log, type 20, versions 0, flexible 0+."""
