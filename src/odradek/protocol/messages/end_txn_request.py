"""EndTxnRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, boolean, int16, int64, string


class EndTxnRequest(Message, kind="request", key=26, versions="0-5", flexible="3+"):
    """Request of API 26, versions 0-5, flexible 3+; listeners: broker."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")
