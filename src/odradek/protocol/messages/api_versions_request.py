"""ApiVersionsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, string


class ApiVersionsRequest(Message, kind="request", key=18, versions="0-5", flexible="3+"):
    """Request of API 18, versions 0-5, flexible 3+; listeners: broker, controller."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)
