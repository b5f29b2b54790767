"""AbortTransactionRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class AbortTransactionRecord(Message, kind="metadata", key=25, versions="0", flexible="0+"):
    """Record of the metadata log, type 25, versions 0, flexible 0+."""

    reason: str | None = string("0+", default=None, nullable="0+", tag=0)
