"""ExpireDelegationTokenRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary, int64


class ExpireDelegationTokenRequest(Message, kind="request", key=40, versions="1-2", flexible="2+"):
    """Request of API 40, versions 1-2, flexible 2+; listeners: broker, controller."""

    hmac: bytes = binary("0+")
    expiry_time_period_ms: int = int64("0+")
