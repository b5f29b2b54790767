"""VotersRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int16, int32, string, struct, uint16, uuid


class Endpoint(Message):
    """Within VotersRecord."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Message):
    """Within VotersRecord."""

    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class Voter(Message):
    """Within VotersRecord."""

    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    endpoints: list[Endpoint] = array(Endpoint, "0+")
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class VotersRecord(Message, kind="data", versions="0", flexible="0+"):
    """Data, versions 0, flexible 0+."""

    version: int = int16("0+")
    voters: list[Voter] = array(Voter, "0+")
