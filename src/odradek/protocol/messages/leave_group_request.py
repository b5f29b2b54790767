"""LeaveGroupRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class MemberIdentity(Message):
    """Within LeaveGroupRequest."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    reason: str | None = string("5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Message, kind="request", key=13, versions="0-5", flexible="4+"):
    """Request of API 13, versions 0-5, flexible 4+; listeners: broker."""

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")
