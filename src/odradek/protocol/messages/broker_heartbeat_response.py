"""BrokerHeartbeatResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, boolean, int16, int32


class BrokerHeartbeatResponse(Message, kind="response", key=63, versions="0-2", flexible="0+"):
    """Response of API 63, versions 0-2, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
