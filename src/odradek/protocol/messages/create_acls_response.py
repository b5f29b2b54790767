"""CreateAclsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class AclCreationResult(Message):
    """Within CreateAclsResponse."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class CreateAclsResponse(Message, kind="response", key=30, versions="1-3", flexible="2+"):
    """Response of API 30, versions 1-3, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")
