"""DescribeUserScramCredentialsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class UserName(Message):
    """Within DescribeUserScramCredentialsRequest."""

    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Message, kind="request", key=50, versions="0", flexible="0+"):
    """Request of API 50, versions 0, flexible 0+; listeners: broker, controller."""

    users: list[UserName] | None = array(UserName, "0+", nullable="0+")
