"""BrokerRegistrationResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32, int64


class BrokerRegistrationResponse(Message, kind="response", key=62, versions="0-4", flexible="0+"):
    """Response of API 62, versions 0-4, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    broker_epoch: int = int64("0+", default=-1)
