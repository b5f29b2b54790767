"""StreamsGroupDescribeRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean


class StreamsGroupDescribeRequest(Message, kind="request", key=89, versions="0-1", flexible="0+"):
    """Request of API 89, versions 0-1, flexible 0+; listeners: broker."""

    group_ids: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("0+")
    include_topology_description: bool = boolean("1+")
