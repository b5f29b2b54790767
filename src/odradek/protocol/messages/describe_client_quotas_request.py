"""DescribeClientQuotasRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, string


class ComponentData(Message):
    """Within DescribeClientQuotasRequest."""

    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


class DescribeClientQuotasRequest(Message, kind="request", key=48, versions="0-1", flexible="1+"):
    """Request of API 48, versions 0-1, flexible 1+; listeners: broker."""

    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")
