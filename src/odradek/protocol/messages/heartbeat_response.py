"""HeartbeatResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32


class HeartbeatResponse(Message, kind="response", key=12, versions="0-4", flexible="4+"):
    """Response of API 12, versions 0-4, flexible 4+."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
