"""ControlRecordTypeSchema, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16


class ControlRecordTypeSchema(Message, kind="data", versions="0"):
    """Data, versions 0, never flexible."""

    type: int = int16("0+")
