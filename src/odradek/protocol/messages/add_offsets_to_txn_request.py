"""AddOffsetsToTxnRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int64, string


class AddOffsetsToTxnRequest(Message, kind="request", key=25, versions="0-4", flexible="3+"):
    """Request of API 25, versions 0-4, flexible 3+; listeners: broker."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")
