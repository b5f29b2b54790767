"""What the settings of links mean for topics: none that exists becomes a mirror, and leader epochs have a floor.

ADR 0018 says why a mirror's leader epoch is never below the source's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import INTERNAL_TOPICS, METADATA_TOPIC
from odradek.controller.topic_names import check_topic_name
from odradek.metadata.model import ResourceType, partition_record
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.settings.links import MAX_EPOCH, MirrorState, floor_of, mirror_key, split_key

if TYPE_CHECKING:
    from odradek.controller.state import ControllerState

_ALL_BROKERS = (int(ResourceType.BROKER), "")


def check_mirrors(state: ControllerState, changed: Mapping[str, str], removed: Collection[str]) -> None:
    """Whether the topics that become mirrors, or are none any more, may.

    Raises:
        ApiError: TOPIC_ALREADY_EXISTS, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION.
    """
    old = state.configs.get(_ALL_BROKERS, {})
    for key in (*changed, *removed):
        parts = split_key(key)
        if parts is None or not parts[2]:
            continue
        _check_promoted(state, old, changed, parts)
        if parts[1] != "mirror":
            continue
        if key in changed:
            _check_name(parts[2])
        if parts[2] not in state.topic_ids:
            continue
        if key not in old:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"Topic '{parts[2]}' exists and has records of its own: it cannot become a mirror.",
            )
        if key in removed:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{parts[2]}' is a mirror for as long as it exists.")


def _check_promoted(
    state: ControllerState, old: Mapping[str, str], changed: Mapping[str, str], parts: tuple[str, str, str]
) -> None:
    link, _, topic = parts
    key = mirror_key(link, "mirror", topic)
    if old.get(key) == MirrorState.PROMOTED:
        # Its leaders know by these settings which records are the source's.
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' was promoted: it is no mirror any more.")
    if changed.get(key) != MirrorState.PROMOTED:
        return
    if topic not in state.topic_ids:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    if mirror_key(link, "leader.epoch", topic) in changed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The leader epoch of '{topic}' is given with its promotion.")
    if (first := _first_own_epoch(state, topic)) > MAX_EPOCH:
        # No broker would take it, nor any later change of these settings.
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' would get leader epoch {first}, above {MAX_EPOCH}.")


def _check_name(topic: str) -> None:
    check_topic_name(topic)
    if topic in INTERNAL_TOPICS or topic == METADATA_TOPIC:
        # Its coordinators, and the quorum, write to it here.
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic}' is internal: it cannot be a mirror.")


def raised_epochs(state: ControllerState, changed: Mapping[str, str]) -> list[Any]:
    """Records that bring the partitions of mirrors to floors that were raised."""
    records: list[Any] = []
    for key, text in changed.items():
        parts = split_key(key)
        topic_id = state.topic_ids.get(parts[2]) if parts is not None and parts[1] == "leader.epoch" else None
        if topic_id is None:
            continue
        floor = int(text)
        for partition_id, partition in state.topic_partitions(state.topics[topic_id]):
            if partition.leader_epoch < floor:
                raised = replace(partition, leader_epoch=floor, partition_epoch=partition.partition_epoch + 1)
                records.append(partition_record(topic_id, partition_id, raised, state.metadata_version))
    return records


def promotions(state: ControllerState, changed: Mapping[str, str]) -> list[Any]:
    """Records that give the partitions of promoted mirrors a leader epoch of this cluster's own: one for all of them,
    above each that a record of the source has."""
    records: list[Any] = []
    for key, text in changed.items():
        parts = split_key(key)
        if parts is None or parts[1] != "mirror" or text != MirrorState.PROMOTED:
            continue
        link, _, topic = parts
        topic_id = state.topic_ids[topic]
        first = _first_own_epoch(state, topic)
        name = mirror_key(link, "leader.epoch", topic)
        records.append(ConfigRecord(resource_type=_ALL_BROKERS[0], resource_name="", name=name, value=str(first)))
        for partition_id, partition in state.topic_partitions(state.topics[topic_id]):
            own = replace(partition, leader_epoch=first, partition_epoch=partition.partition_epoch + 1)
            records.append(partition_record(topic_id, partition_id, own, state.metadata_version))
    return records


def _first_own_epoch(state: ControllerState, topic: str) -> int:
    """Above each leader epoch that a record of the source has."""
    partitions = state.topic_partitions(state.topics[state.topic_ids[topic]])
    return max([first_leader_epoch(state, topic), *(partition.leader_epoch for _, partition in partitions)]) + 1


def first_leader_epoch(state: ControllerState, topic: str) -> int:
    """The leader epoch of a new partition."""
    return floor_of(state.configs.get(_ALL_BROKERS, {}), topic)


def end_of_mirror(state: ControllerState, topic: str) -> list[ConfigRecord]:
    """Records that take the settings of a mirror away, with its topic."""
    return [
        ConfigRecord(resource_type=_ALL_BROKERS[0], resource_name="", name=key, value=None)
        for key in state.configs.get(_ALL_BROKERS, {})
        if (parts := split_key(key)) is not None and parts[2] == topic and parts[1] != "bootstrap.servers"
    ]
