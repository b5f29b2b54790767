"""AlterConfigsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int8, int16, int32, string


class AlterConfigsResourceResponse(Message):
    """Within AlterConfigsResponse."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Message, kind="response", key=33, versions="0-2", flexible="2+"):
    """Response of API 33, versions 0-2, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
