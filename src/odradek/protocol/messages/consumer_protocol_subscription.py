"""ConsumerProtocolSubscription, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, binary, int32, string


class TopicPartition(Message):
    """Within ConsumerProtocolSubscription."""

    topic: str = string("1+")
    partitions: list[int] = array("int32", "1+")


class ConsumerProtocolSubscription(Message, kind="data", versions="0-3"):
    """Data, versions 0-3, never flexible."""

    topics: list[str] = array("string", "0+")
    user_data: bytes | None = binary("0+", default=None, nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
