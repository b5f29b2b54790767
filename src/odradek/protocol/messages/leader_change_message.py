"""LeaderChangeMessage, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, uuid


class Voter(Message):
    """Within LeaderChangeMessage."""

    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("1+")


class LeaderChangeMessage(Message, kind="data", versions="0-1", flexible="0+"):
    """Data, versions 0-1, flexible 0+."""

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[Voter] = array(Voter, "0+")
    granting_voters: list[Voter] = array(Voter, "0+")
