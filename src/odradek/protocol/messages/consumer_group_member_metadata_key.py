"""ConsumerGroupMemberMetadataKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class ConsumerGroupMemberMetadataKey(Message, kind="coordinator-key", key=5, versions="0"):
    """Key of a coordinator's record, type 5, versions 0, never flexible."""

    group_id: str = string("0")
    member_id: str = string("0")
