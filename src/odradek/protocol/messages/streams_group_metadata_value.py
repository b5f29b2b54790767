"""StreamsGroupMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int32, int64, string


class LastAssignmentConfig(Message):
    """Within StreamsGroupMetadataValue."""

    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMetadataValue(Message, kind="coordinator-value", key=17, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 17, versions 0, flexible 0+."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(LastAssignmentConfig, "0+", nullable="0+", tag=1)
    stored_description_topology_epoch: int = int32("0+", default=-1, tag=2)
    failed_description_topology_epoch: int = int32("0+", default=-1, tag=3)
