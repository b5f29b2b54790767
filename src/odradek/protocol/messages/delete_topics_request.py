"""DeleteTopicsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int32, string, uuid


class DeleteTopicState(Message):
    """Within DeleteTopicsRequest."""

    name: str | None = string("6+", default=None, nullable="6+")
    topic_id: UUID = uuid("6+")


class DeleteTopicsRequest(Message, kind="request", key=20, versions="1-6", flexible="4+"):
    """Request of API 20, versions 1-6, flexible 4+; listeners: broker, controller."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32("0+")
