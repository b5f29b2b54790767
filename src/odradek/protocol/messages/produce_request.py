"""ProduceRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, batches, int16, int32, string, uuid
from odradek.protocol.records_field import Records


class PartitionProduceData(Message):
    """Within ProduceRequest."""

    index: int = int32("0+")
    records: Records = batches("0+", nullable="0+")


class TopicProduceData(Message):
    """Within ProduceRequest."""

    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, kind="request", key=0, versions="3-13", flexible="9+"):
    """Request of API 0, versions 3-13, flexible 9+; listeners: broker."""

    transactional_id: str | None = string("3+", default=None, nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")
