"""HeartbeatRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, string


class HeartbeatRequest(Message, kind="request", key=12, versions="0-4", flexible="4+"):
    """Request of API 12, versions 0-4, flexible 4+; listeners: broker."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
