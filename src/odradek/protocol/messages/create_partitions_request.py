"""CreatePartitionsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int32, string


class CreatePartitionsAssignment(Message):
    """Within CreatePartitionsRequest."""

    broker_ids: list[int] = array("int32", "0+")


class CreatePartitionsTopic(Message):
    """Within CreatePartitionsRequest."""

    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


class CreatePartitionsRequest(Message, kind="request", key=37, versions="0-3", flexible="2+"):
    """Request of API 37, versions 0-3, flexible 2+; listeners: broker, controller."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")
