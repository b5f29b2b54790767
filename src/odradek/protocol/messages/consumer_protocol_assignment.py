"""ConsumerProtocolAssignment, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, binary, string


class TopicPartition(Message):
    """Within ConsumerProtocolAssignment."""

    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class ConsumerProtocolAssignment(Message, kind="data", versions="0-3"):
    """Data, versions 0-3, never flexible."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", default=None, nullable="0+")
