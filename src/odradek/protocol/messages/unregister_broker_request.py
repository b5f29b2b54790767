"""UnregisterBrokerRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32


class UnregisterBrokerRequest(Message, kind="request", key=64, versions="0", flexible="0+"):
    """Request of API 64, versions 0, flexible 0+; listeners: broker, controller."""

    broker_id: int = int32("0+")
