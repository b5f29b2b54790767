"""FindCoordinatorRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int8, string


class FindCoordinatorRequest(Message, kind="request", key=10, versions="0-6", flexible="3+"):
    """Request of API 10, versions 0-6, flexible 3+; listeners: broker."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array("string", "4+")
