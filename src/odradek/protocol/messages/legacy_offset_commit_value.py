"""LegacyOffsetCommitValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int64, string


class LegacyOffsetCommitValue(Message, kind="coordinator-value", key=0, versions="0"):
    """Value of a coordinator's record, type 0, versions 0, never flexible."""

    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")
