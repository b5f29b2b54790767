"""KRaftVersionRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16


class KRaftVersionRecord(Message, kind="data", versions="0", flexible="0+"):
    """Data, versions 0, flexible 0+."""

    version: int = int16("0+")
    k_raft_version: int = int16("0+")
