"""EndTxnMarker, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int32


class EndTxnMarker(Message, kind="data", versions="0"):
    """Data, versions 0, never flexible."""

    coordinator_epoch: int = int32("0+")
