"""RemoveDelegationTokenRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class RemoveDelegationTokenRecord(Message, kind="metadata", key=26, versions="0", flexible="0+"):
    """Record of the metadata log, type 26, versions 0, flexible 0+."""

    token_id: str = string("0+")
