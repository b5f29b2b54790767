"""RenewDelegationTokenResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32, int64


class RenewDelegationTokenResponse(Message, kind="response", key=39, versions="1-2", flexible="2+"):
    """Response of API 39, versions 1-2, flexible 2+."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
