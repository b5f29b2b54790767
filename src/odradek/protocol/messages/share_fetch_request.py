"""ShareFetchRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int8, int32, int64, string, uuid


class AcknowledgementBatch(Message):
    """Within ShareFetchRequest."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array("int8", "0+")


class FetchPartition(Message):
    """Within ShareFetchRequest."""

    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class FetchTopic(Message):
    """Within ShareFetchRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Message):
    """Within ShareFetchRequest."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ShareFetchRequest(Message, kind="request", key=78, versions="1-2", flexible="0+"):
    """Request of API 78, versions 1-2, flexible 0+; listeners: broker."""

    group_id: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=2147483647)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "0+")
