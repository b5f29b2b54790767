"""ListConfigResourcesRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array


class ListConfigResourcesRequest(Message, kind="request", key=74, versions="0-1", flexible="0+"):
    """Request of API 74, versions 0-1, flexible 0+; listeners: broker."""

    resource_types: list[int] = array("int8", "1+")
