"""OffsetCommitValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, int32, int64, string, uuid


class OffsetCommitValue(Message, kind="coordinator-value", key=1, versions="0-4", flexible="4+"):
    """Value of a coordinator's record, type 1, versions 0-4, flexible 4+."""

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, ignorable=True)
