"""LegacyOffsetCommitKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, string


class LegacyOffsetCommitKey(Message, kind="coordinator-key", key=0, versions="0"):
    """Key of a coordinator's record, type 0, versions 0, never flexible."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")
