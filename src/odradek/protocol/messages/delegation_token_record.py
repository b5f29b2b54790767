"""DelegationTokenRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int64, string


class DelegationTokenRecord(Message, kind="metadata", key=10, versions="0", flexible="0+"):
    """Record of the metadata log, type 10, versions 0, flexible 0+."""

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array("string", "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")
