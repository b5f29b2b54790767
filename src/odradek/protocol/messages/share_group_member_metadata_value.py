"""ShareGroupMemberMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class ShareGroupMemberMetadataValue(Message, kind="coordinator-value", key=10, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 10, versions 0, flexible 0+."""

    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array("string", "0+")
