"""ResponseHeader, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32


class ResponseHeader(Message, kind="header", versions="0-1", flexible="1+"):
    """Header, versions 0-1, flexible 1+."""

    correlation_id: int = int32("0+")
