"""EndTxnResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32, int64


class EndTxnResponse(Message, kind="response", key=26, versions="0-5", flexible="3+"):
    """Response of API 26, versions 0-5, flexible 3+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
