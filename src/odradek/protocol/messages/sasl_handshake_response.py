"""SaslHandshakeResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16


class SaslHandshakeResponse(Message, kind="response", key=17, versions="0-1"):
    """Response of API 17, versions 0-1, never flexible."""

    error_code: int = int16("0+")
    mechanisms: list[str] = array("string", "0+")
