"""StreamsGroupTargetAssignmentMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class StreamsGroupTargetAssignmentMetadataValue(Message, kind="coordinator-value", key=20, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 20, versions 0, flexible 0+."""

    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)
