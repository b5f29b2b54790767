"""AllocateProducerIdsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class AllocateProducerIdsRequest(Message, kind="request", key=67, versions="0", flexible="0+"):
    """Request of API 67, versions 0, flexible 0+; listeners: controller."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
