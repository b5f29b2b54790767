"""FeatureLevelRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, string


class FeatureLevelRecord(Message, kind="metadata", key=12, versions="0", flexible="0+"):
    """Record of the metadata log, type 12, versions 0, flexible 0+."""

    name: str = string("0+")
    feature_level: int = int16("0+")
