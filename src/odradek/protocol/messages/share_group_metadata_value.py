"""ShareGroupMetadataValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32, int64


class ShareGroupMetadataValue(Message, kind="coordinator-value", key=11, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 11, versions 0, flexible 0+."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
