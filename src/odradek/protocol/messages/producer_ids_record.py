"""ProducerIdsRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class ProducerIdsRecord(Message, kind="metadata", key=15, versions="0", flexible="0+"):
    """Record of the metadata log, type 15, versions 0, flexible 0+."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")
