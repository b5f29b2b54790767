"""SaslHandshakeRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class SaslHandshakeRequest(Message, kind="request", key=17, versions="0-1"):
    """Request of API 17, versions 0-1, never flexible; listeners: broker, controller."""

    mechanism: str = string("0+")
