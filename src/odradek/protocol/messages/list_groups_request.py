"""ListGroupsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array


class ListGroupsRequest(Message, kind="request", key=16, versions="0-5", flexible="3+"):
    """Request of API 16, versions 0-5, flexible 3+; listeners: broker."""

    states_filter: list[str] = array("string", "4+")
    types_filter: list[str] = array("string", "5+")
