"""UserScramCredentialRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary, int8, int32, string


class UserScramCredentialRecord(Message, kind="metadata", key=11, versions="0", flexible="0+"):
    """Record of the metadata log, type 11, versions 0, flexible 0+."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = binary("0+")
    stored_key: bytes = binary("0+")
    server_key: bytes = binary("0+")
    iterations: int = int32("0+")
