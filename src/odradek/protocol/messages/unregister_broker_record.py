"""UnregisterBrokerRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class UnregisterBrokerRecord(Message, kind="metadata", key=1, versions="0", flexible="0+"):
    """Record of the metadata log, type 1, versions 0, flexible 0+."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
