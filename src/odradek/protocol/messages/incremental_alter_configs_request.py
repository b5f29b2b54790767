"""IncrementalAlterConfigsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, string


class AlterableConfig(Message):
    """Within IncrementalAlterConfigsRequest."""

    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Message):
    """Within IncrementalAlterConfigsRequest."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class IncrementalAlterConfigsRequest(Message, kind="request", key=44, versions="0-1", flexible="1+"):
    """Request of API 44, versions 0-1, flexible 1+; listeners: broker, controller."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")
