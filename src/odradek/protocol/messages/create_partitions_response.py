"""CreatePartitionsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class CreatePartitionsTopicResult(Message):
    """Within CreatePartitionsResponse."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class CreatePartitionsResponse(Message, kind="response", key=37, versions="0-3", flexible="2+"):
    """Response of API 37, versions 0-3, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
