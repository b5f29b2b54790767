"""OffsetCommitKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, string


class OffsetCommitKey(Message, kind="coordinator-key", key=1, versions="0"):
    """Key of a coordinator's record, type 1, versions 0, never flexible."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")
