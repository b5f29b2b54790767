"""BeginTransactionRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class BeginTransactionRecord(Message, kind="metadata", key=23, versions="0", flexible="0+"):
    """Record of the metadata log, type 23, versions 0, flexible 0+."""

    name: str | None = string("0+", default=None, nullable="0+", tag=0)
