"""AddOffsetsToTxnResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32


class AddOffsetsToTxnResponse(Message, kind="response", key=25, versions="0-4", flexible="3+"):
    """Response of API 25, versions 0-4, flexible 3+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
