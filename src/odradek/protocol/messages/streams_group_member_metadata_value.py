"""StreamsGroupMemberMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, string, struct, uint16


class Endpoint(Message):
    """Within StreamsGroupMemberMetadataValue."""

    host: str = string("0+")
    port: int = uint16("0+")


class KeyValue(Message):
    """Within StreamsGroupMemberMetadataValue."""

    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMemberMetadataValue(Message, kind="coordinator-value", key=19, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 19, versions 0, flexible 0+."""

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, "0+")
