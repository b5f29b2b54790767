"""DeleteGroupsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array


class DeleteGroupsRequest(Message, kind="request", key=42, versions="0-3", flexible="2+"):
    """Request of API 42, versions 0-3, flexible 2+; listeners: broker."""

    groups_names: list[str] = array("string", "0+")
