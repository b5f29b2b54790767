"""AlterConfigsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, string


class AlterableConfig(Message):
    """Within AlterConfigsRequest."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Message):
    """Within AlterConfigsRequest."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Message, kind="request", key=33, versions="0-2", flexible="2+"):
    """Request of API 33, versions 0-2, flexible 2+; listeners: broker, controller."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")
