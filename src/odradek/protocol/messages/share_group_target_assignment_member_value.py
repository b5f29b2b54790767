"""ShareGroupTargetAssignmentMemberValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, uuid


class TopicPartition(Message):
    """Within ShareGroupTargetAssignmentMemberValue."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ShareGroupTargetAssignmentMemberValue(Message, kind="coordinator-value", key=13, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 13, versions 0, flexible 0+."""

    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")
