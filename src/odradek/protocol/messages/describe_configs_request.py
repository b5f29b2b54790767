"""DescribeConfigsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, string


class DescribeConfigsResource(Message):
    """Within DescribeConfigsRequest."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array("string", "0+", nullable="0+")


class DescribeConfigsRequest(Message, kind="request", key=32, versions="1-4", flexible="4+"):
    """Request of API 32, versions 1-4, flexible 4+; listeners: broker, controller."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")
