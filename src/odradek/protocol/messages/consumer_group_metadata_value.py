"""ConsumerGroupMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class ConsumerGroupMetadataValue(Message, kind="coordinator-value", key=3, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 3, versions 0, flexible 0+."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)
