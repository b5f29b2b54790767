"""UnregisterControllerRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32


class UnregisterControllerRequest(Message, kind="request", key=94, versions="0", flexible="0+"):
    """Request of API 94, versions 0, flexible 0+; listeners: broker, controller."""

    controller_id: int = int32("0+")
