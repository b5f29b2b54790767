"""JoinGroupRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, binary, int32, string


class JoinGroupRequestProtocol(Message):
    """Within JoinGroupRequest."""

    name: str = string("0+")
    metadata: bytes = binary("0+")


class JoinGroupRequest(Message, kind="request", key=11, versions="0-9", flexible="6+"):
    """Request of API 11, versions 0-9, flexible 6+; listeners: broker."""

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", default=None, nullable="8+", ignorable=True)
