"""CreateDelegationTokenRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int64, string


class CreatableRenewers(Message):
    """Within CreateDelegationTokenRequest."""

    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Message, kind="request", key=38, versions="1-3", flexible="2+"):
    """Request of API 38, versions 1-3, flexible 2+; listeners: broker, controller."""

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")
