"""RemoveRaftVoterRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, int32, string, uuid


class RemoveRaftVoterRequest(Message, kind="request", key=81, versions="0", flexible="0+"):
    """Request of API 81, versions 0, flexible 0+; listeners: controller, broker."""

    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
