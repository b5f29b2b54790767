"""ConsumerGroupTargetAssignmentMemberValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, uuid


class TopicPartition(Message):
    """Within ConsumerGroupTargetAssignmentMemberValue."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, kind="coordinator-value", key=7, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 7, versions 0, flexible 0+."""

    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")
