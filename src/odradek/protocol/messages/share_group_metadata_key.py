"""ShareGroupMetadataKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class ShareGroupMetadataKey(Message, kind="coordinator-key", key=11, versions="0"):
    """Key of a coordinator's record, type 11, versions 0, never flexible."""

    group_id: str = string("0")
