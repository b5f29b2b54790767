"""StreamsGroupTopologyDescriptionUpdateRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int8, int32, string, struct


class TopologyDescriptionNode(Message):
    """Within StreamsGroupTopologyDescriptionUpdateRequest."""

    name: str = string("0+")
    node_type: int = int8("0+")
    source_topics: list[str] = array("string", "0+")
    sink_topic: str | None = string("0+", default=None, nullable="0+")
    stores: list[str] = array("string", "0+")
    successors: list[str] = array("string", "0+")


class TopologyDescriptionSubtopology(Message):
    """Within StreamsGroupTopologyDescriptionUpdateRequest."""

    subtopology_id: str = string("0+")
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, "0+")


class TopologyDescriptionGlobalStore(Message):
    """Within StreamsGroupTopologyDescriptionUpdateRequest."""

    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")


class TopologyDescription(Message):
    """Within StreamsGroupTopologyDescriptionUpdateRequest."""

    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, "0+")
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, "0+")


class StreamsGroupTopologyDescriptionUpdateRequest(Message, kind="request", key=93, versions="0", flexible="0+"):
    """Request of API 93, versions 0, flexible 0+; listeners: broker."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    topology_epoch: int = int32("0+")
    topology_description: TopologyDescription = struct(TopologyDescription, "0+")
