"""StreamsGroupTargetAssignmentMemberValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class TaskIds(Message):
    """Within StreamsGroupTargetAssignmentMemberValue."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class StreamsGroupTargetAssignmentMemberValue(Message, kind="coordinator-value", key=21, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 21, versions 0, flexible 0+."""

    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")
