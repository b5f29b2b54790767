"""ShareUpdateKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, int32, string, uuid


class ShareUpdateKey(Message, kind="coordinator-key", key=1, versions="0"):
    """Key of a coordinator's record, type 1, versions 0, never flexible."""

    group_id: str = string("0")
    topic_id: UUID = uuid("0")
    partition: int = int32("0")
