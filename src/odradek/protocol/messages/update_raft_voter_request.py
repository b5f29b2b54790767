"""UpdateRaftVoterRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, string, struct, uint16, uuid


class Listener(Message):
    """Within UpdateRaftVoterRequest."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Message):
    """Within UpdateRaftVoterRequest."""

    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class UpdateRaftVoterRequest(Message, kind="request", key=82, versions="0", flexible="0+"):
    """Request of API 82, versions 0, flexible 0+; listeners: controller."""

    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")
