"""SyncGroupRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, binary, int32, string


class SyncGroupRequestAssignment(Message):
    """Within SyncGroupRequest."""

    member_id: str = string("0+")
    assignment: bytes = binary("0+")


class SyncGroupRequest(Message, kind="request", key=14, versions="0-5", flexible="4+"):
    """Request of API 14, versions 0-5, flexible 4+; listeners: broker."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")
