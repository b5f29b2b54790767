"""ShareAcknowledgeRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int32, int64, string, uuid


class AcknowledgementBatch(Message):
    """Within ShareAcknowledgeRequest."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array("int8", "0+")


class AcknowledgePartition(Message):
    """Within ShareAcknowledgeRequest."""

    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class AcknowledgeTopic(Message):
    """Within ShareAcknowledgeRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, "0+")


class ShareAcknowledgeRequest(Message, kind="request", key=79, versions="1-2", flexible="0+"):
    """Request of API 79, versions 1-2, flexible 0+; listeners: broker."""

    group_id: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")
