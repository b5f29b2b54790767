"""ShareGroupHeartbeatRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string


class ShareGroupHeartbeatRequest(Message, kind="request", key=76, versions="1", flexible="0+"):
    """Request of API 76, versions 1, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    subscribed_topic_names: list[str] | None = array("string", "0+", default=None, nullable="0+")
