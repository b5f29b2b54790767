"""GroupMetadataKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class GroupMetadataKey(Message, kind="coordinator-key", key=2, versions="0"):
    """Key of a coordinator's record, type 2, versions 0, never flexible."""

    group: str = string("0")
