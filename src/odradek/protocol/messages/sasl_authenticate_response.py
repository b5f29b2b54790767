"""SaslAuthenticateResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary, int16, int64, string


class SaslAuthenticateResponse(Message, kind="response", key=36, versions="0-2", flexible="2+"):
    """Response of API 36, versions 0-2, flexible 2+."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
