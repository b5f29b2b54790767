"""ShareGroupCurrentMemberAssignmentValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int32, uuid


class TopicPartitions(Message):
    """Within ShareGroupCurrentMemberAssignmentValue."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ShareGroupCurrentMemberAssignmentValue(Message, kind="coordinator-value", key=14, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 14, versions 0, flexible 0+."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
