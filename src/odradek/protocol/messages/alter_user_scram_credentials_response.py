"""AlterUserScramCredentialsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class AlterUserScramCredentialsResult(Message):
    """Within AlterUserScramCredentialsResponse."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, kind="response", key=51, versions="0", flexible="0+"):
    """Response of API 51, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")
