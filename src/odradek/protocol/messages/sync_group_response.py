"""SyncGroupResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary, int16, int32, string


class SyncGroupResponse(Message, kind="response", key=14, versions="0-5", flexible="4+"):
    """Response of API 14, versions 0-5, flexible 4+."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = binary("0+")
