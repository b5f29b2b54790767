"""DeleteGroupsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class DeletableGroupResult(Message):
    """Within DeleteGroupsResponse."""

    group_id: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("3+", default=None, nullable="3+", ignorable=True)


class DeleteGroupsResponse(Message, kind="response", key=42, versions="0-3", flexible="2+"):
    """Response of API 42, versions 0-3, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
