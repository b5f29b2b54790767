"""AlterUserScramCredentialsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, binary, int8, int32, string


class ScramCredentialDeletion(Message):
    """Within AlterUserScramCredentialsRequest."""

    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Message):
    """Within AlterUserScramCredentialsRequest."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+")


class AlterUserScramCredentialsRequest(Message, kind="request", key=51, versions="0", flexible="0+"):
    """Request of API 51, versions 0, flexible 0+; listeners: broker, controller."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")
