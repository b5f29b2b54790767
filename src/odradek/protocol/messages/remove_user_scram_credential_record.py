"""RemoveUserScramCredentialRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int8, string


class RemoveUserScramCredentialRecord(Message, kind="metadata", key=22, versions="0", flexible="0+"):
    """Record of the metadata log, type 22, versions 0, flexible 0+."""

    name: str = string("0+")
    mechanism: int = int8("0+")
