"""EnvelopeResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary, int16


class EnvelopeResponse(Message, kind="response", key=58, versions="0", flexible="0+"):
    """Response of API 58, versions 0, flexible 0+."""

    response_data: bytes | None = binary("0+", default=None, nullable="0+")
    error_code: int = int16("0+")
