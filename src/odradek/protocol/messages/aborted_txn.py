"""AbortedTxn, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int64


class AbortedTxn(Message, kind="data", versions="0"):
    """Data, versions 0, never flexible."""

    producer_id: int = int64("0+")
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    last_stable_offset: int = int64("0+")
