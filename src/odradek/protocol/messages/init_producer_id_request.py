"""InitProducerIdRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, kind="request", key=22, versions="0-6", flexible="2+"):
    """Request of API 22, versions 0-6, flexible 2+; listeners: broker."""

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")
