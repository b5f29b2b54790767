"""StreamsGroupCurrentMemberAssignmentValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int8, int32, string


class TaskIds(Message):
    """Within StreamsGroupCurrentMemberAssignmentValue."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array("int32", "0+")
    assignment_epochs: list[int] | None = array("int32", "0+", nullable="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, kind="coordinator-value", key=22, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 22, versions 0, flexible 0+."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
