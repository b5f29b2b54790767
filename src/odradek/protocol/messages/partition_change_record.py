"""PartitionChangeRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int32, uuid


class PartitionChangeRecord(Message, kind="metadata", key=5, versions="0-2", flexible="0+"):
    """Record of the metadata log, type 5, versions 0-2, flexible 0+."""

    partition_id: int = int32("0+", default=-1)
    topic_id: UUID = uuid("0+")
    isr: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=0)
    leader: int = int32("0+", default=-2, tag=1)
    replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=2)
    removing_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=3)
    adding_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+", tag=4)
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: list[UUID] | None = array("uuid", "1+", default=None, nullable="1+", tag=8)
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=6)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=7)
