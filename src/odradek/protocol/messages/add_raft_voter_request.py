"""AddRaftVoterRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int32, string, uint16, uuid


class Listener(Message):
    """Within AddRaftVoterRequest."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class AddRaftVoterRequest(Message, kind="request", key=80, versions="0-1", flexible="0+"):
    """Request of API 80, versions 0-1, flexible 0+; listeners: controller, broker."""

    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    ack_when_committed: bool = boolean("1+", default=True)
