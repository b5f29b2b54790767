"""DescribeClusterRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, boolean, int8


class DescribeClusterRequest(Message, kind="request", key=60, versions="0-2", flexible="0+"):
    """Request of API 60, versions 0-2, flexible 0+; listeners: broker, controller."""

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")
