"""UnregisterControllerRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32


class UnregisterControllerRecord(Message, kind="metadata", key=29, versions="0", flexible="0+"):
    """Record of the metadata log, type 29, versions 0, flexible 0+."""

    controller_id: int = int32("0+")
