"""DeleteShareGroupOffsetsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class DeleteShareGroupOffsetsRequestTopic(Message):
    """Within DeleteShareGroupOffsetsRequest."""

    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(Message, kind="request", key=92, versions="0", flexible="0+"):
    """Request of API 92, versions 0, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic, "0+")
