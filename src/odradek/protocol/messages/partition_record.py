"""PartitionRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int32, uuid


class PartitionRecord(Message, kind="metadata", key=3, versions="0-2", flexible="0+"):
    """Record of the metadata log, type 3, versions 0-2, flexible 0+."""

    partition_id: int = int32("0+", default=-1)
    topic_id: UUID = uuid("0+")
    replicas: list[int] = array("int32", "0+")
    isr: list[int] = array("int32", "0+")
    removing_replicas: list[int] = array("int32", "0+")
    adding_replicas: list[int] = array("int32", "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[UUID] = array("uuid", "1+")
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=1)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable="2+", tag=2)
