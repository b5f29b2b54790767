"""DescribeDelegationTokenRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class DescribeDelegationTokenOwner(Message):
    """Within DescribeDelegationTokenRequest."""

    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribeDelegationTokenRequest(Message, kind="request", key=41, versions="1-3", flexible="2+"):
    """Request of API 41, versions 1-3, flexible 2+; listeners: broker, controller."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, "0+", nullable="0+")
