"""SnapshotHeaderRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int64


class SnapshotHeaderRecord(Message, kind="data", versions="0", flexible="0+"):
    """Data, versions 0, flexible 0+."""

    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")
