"""StreamsGroupHeartbeatResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, int16, int32, int64, string, struct, uint16


class Status(Message):
    """Within StreamsGroupHeartbeatResponse."""

    status_code: int = int8("0+")
    status_detail: str = string("0+")


class TaskIds(Message):
    """Within StreamsGroupHeartbeatResponse."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class Endpoint(Message):
    """Within StreamsGroupHeartbeatResponse."""

    host: str = string("0+")
    port: int = uint16("0+")


class TopicPartition(Message):
    """Within StreamsGroupHeartbeatResponse."""

    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class EndpointToPartitions(Message):
    """Within StreamsGroupHeartbeatResponse."""

    user_endpoint: Endpoint = struct(Endpoint, "0+")
    active_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    standby_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class StreamsGroupHeartbeatResponse(Message, kind="response", key=88, versions="0-1", flexible="0+"):
    """Response of API 88, versions 0-1, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag_legacy: int = int32("0")
    task_offset_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int64("1+", default=-1, ignorable=True)
    status: list[Status] | None = array(Status, "0+", nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", default=None, nullable="0+")
    topology_description_required: bool = boolean("1+")
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, "0+", default=None, nullable="0+"
    )
