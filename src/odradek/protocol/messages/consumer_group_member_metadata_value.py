"""ConsumerGroupMemberMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, binary, int32, string, struct


class ClassicProtocol(Message):
    """Within ConsumerGroupMemberMetadataValue."""

    name: str = string("0+")
    metadata: bytes = binary("0+")


class ClassicMemberMetadata(Message):
    """Within ConsumerGroupMemberMetadataValue."""

    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Message, kind="coordinator-value", key=5, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 5, versions 0, flexible 0+."""

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array("string", "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, "0+", nullable="0+", tag=0)
