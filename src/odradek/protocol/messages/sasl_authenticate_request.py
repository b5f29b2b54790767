"""SaslAuthenticateRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary


class SaslAuthenticateRequest(Message, kind="request", key=36, versions="0-2", flexible="2+"):
    """Request of API 36, versions 0-2, flexible 2+; listeners: broker, controller."""

    auth_bytes: bytes = binary("0+")
