"""QuorumStateData, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, int64, string, uuid


class Voter(Message):
    """Within QuorumStateData."""

    voter_id: int = int32("0")


class QuorumStateData(Message, kind="data", versions="0-1", flexible="0+"):
    """Data, versions 0-1, flexible 0+."""

    cluster_id: str = string("0")
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    voted_id: int = int32("0+", default=-1)
    voted_directory_id: UUID = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[Voter] | None = array(Voter, "0", nullable="0")
