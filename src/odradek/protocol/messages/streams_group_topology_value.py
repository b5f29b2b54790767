"""StreamsGroupTopologyValue, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, string


class TopicConfig(Message):
    """Within StreamsGroupTopologyValue."""

    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Message):
    """Within StreamsGroupTopologyValue."""

    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[TopicConfig] = array(TopicConfig, "0+")


class CopartitionGroup(Message):
    """Within StreamsGroupTopologyValue."""

    source_topics: list[int] = array("int16", "0+")
    source_topic_regex: list[int] = array("int16", "0+")
    repartition_source_topics: list[int] = array("int16", "0+")


class Subtopology(Message):
    """Within StreamsGroupTopologyValue."""

    subtopology_id: str = string("0+")
    source_topics: list[str] = array("string", "0+")
    source_topic_regex: list[str] = array("string", "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_sink_topics: list[str] = array("string", "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup, "0+")


class StreamsGroupTopologyValue(Message, kind="coordinator-value", key=23, versions="0", flexible="0+"):
    """Value of a coordinator's record, type 23, versions 0, flexible 0+."""

    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")
