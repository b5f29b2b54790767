"""DescribeGroupsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean


class DescribeGroupsRequest(Message, kind="request", key=15, versions="0-6", flexible="5+"):
    """Request of API 15, versions 0-6, flexible 5+; listeners: broker."""

    groups: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("3+")
