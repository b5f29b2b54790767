"""StreamsGroupDescribeResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, int16, int32, int64, string, struct, uint16


class KeyValue(Message):
    """Within StreamsGroupDescribeResponse."""

    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Message):
    """Within StreamsGroupDescribeResponse."""

    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[KeyValue] = array(KeyValue, "0+")


class Subtopology(Message):
    """Within StreamsGroupDescribeResponse."""

    subtopology_id: str = string("0+")
    source_topics: list[str] = array("string", "0+")
    repartition_sink_topics: list[str] = array("string", "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")


class Topology(Message):
    """Within StreamsGroupDescribeResponse."""

    epoch: int = int32("0+")
    subtopologies: list[Subtopology] | None = array(Subtopology, "0+", default=None, nullable="0+")


class Endpoint(Message):
    """Within StreamsGroupDescribeResponse."""

    host: str = string("0+")
    port: int = uint16("0+")


class TaskOffset(Message):
    """Within StreamsGroupDescribeResponse."""

    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


class TaskIds(Message):
    """Within StreamsGroupDescribeResponse."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class Assignment(Message):
    """Within StreamsGroupDescribeResponse."""

    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")


class Member(Message):
    """Within StreamsGroupDescribeResponse."""

    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", default=None, nullable="0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, "0+")
    task_offsets: list[TaskOffset] = array(TaskOffset, "0+")
    task_end_offsets: list[TaskOffset] = array(TaskOffset, "0+")
    assignment: Assignment = struct(Assignment, "0+")
    target_assignment: Assignment = struct(Assignment, "0+")
    is_classic: bool = boolean("0+")


class TopologyDescriptionNode(Message):
    """Within StreamsGroupDescribeResponse."""

    name: str = string("1+")
    node_type: int = int8("1+")
    source_topics: list[str] = array("string", "1+")
    sink_topic: str | None = string("1+", default=None, nullable="1+")
    stores: list[str] = array("string", "1+")
    successors: list[str] = array("string", "1+")


class TopologyDescriptionSubtopology(Message):
    """Within StreamsGroupDescribeResponse."""

    subtopology_id: str = string("1+")
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, "1+")


class TopologyDescriptionGlobalStore(Message):
    """Within StreamsGroupDescribeResponse."""

    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "1+")
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "1+")


class TopologyDescription(Message):
    """Within StreamsGroupDescribeResponse."""

    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, "1+")
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, "1+")


class DescribedGroup(Message):
    """Within StreamsGroupDescribeResponse."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    topology: Topology | None = struct(Topology, "0+", default=None, nullable="0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", default=-2147483648)
    topology_description: TopologyDescription | None = struct(TopologyDescription, "1+", default=None, nullable="1+")
    topology_description_status: int = int8("1+")
    assignor_name: str | None = string("1+", default=None, nullable="1+", ignorable=True)


class StreamsGroupDescribeResponse(Message, kind="response", key=89, versions="0-1", flexible="0+"):
    """Response of API 89, versions 0-1, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
