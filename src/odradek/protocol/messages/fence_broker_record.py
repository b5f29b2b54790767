"""FenceBrokerRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class FenceBrokerRecord(Message, kind="metadata", key=7, versions="0", flexible="0+"):
    """Record of the metadata log, type 7, versions 0, flexible 0+."""

    id: int = int32("0+")
    epoch: int = int64("0+")
