"""EndTransactionRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message


class EndTransactionRecord(Message, kind="metadata", key=24, versions="0", flexible="0+"):
    """Record of the metadata log, type 24, versions 0, flexible 0+."""
