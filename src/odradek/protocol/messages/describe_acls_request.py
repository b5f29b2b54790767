"""DescribeAclsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int8, string


class DescribeAclsRequest(Message, kind="request", key=29, versions="1-3", flexible="2+"):
    """Request of API 29, versions 1-3, flexible 2+; listeners: broker, controller."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")
