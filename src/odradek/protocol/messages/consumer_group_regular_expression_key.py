"""ConsumerGroupRegularExpressionKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class ConsumerGroupRegularExpressionKey(Message, kind="coordinator-key", key=16, versions="0"):
    """Key of a coordinator's record, type 16, versions 0, never flexible."""

    group_id: str = string("0")
    regular_expression: str = string("0")
