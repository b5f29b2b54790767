"""UnregisterControllerResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32, string


class UnregisterControllerResponse(Message, kind="response", key=94, versions="0", flexible="0+"):
    """Response of API 94, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
