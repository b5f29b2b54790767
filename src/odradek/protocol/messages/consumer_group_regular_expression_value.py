"""ConsumerGroupRegularExpressionValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int64


class ConsumerGroupRegularExpressionValue(Message, kind="coordinator-value", key=16, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 16, versions 0, flexible 0+."""

    topics: list[str] = array("string", "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")
