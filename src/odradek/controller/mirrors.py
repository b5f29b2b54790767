"""Effects of the settings of links on topics: no existing topic becomes a mirror; leader epochs have a minimum.

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
from odradek.settings.link_names import PREFIX
from odradek.settings.links import (
    LINK_PREFIX,
    MAX_EPOCH,
    MirrorState,
    begun_partition,
    bootstrap_key,
    cut_partition,
    ended_mirrors,
    floor_of,
    mirror_key,
    other_source,
    own_from,
    parse_cut,
    setting_key,
    source_topic,
    split_key,
    value_problem,
)

if TYPE_CHECKING:
    from odradek.controller.state import ControllerState

Parts = tuple[str, str, str]
_ALL_BROKERS = (int(ResourceType.BROKER), "")


def check_mirrors(state: ControllerState, changed: Mapping[str, str], removed: Collection[str]) -> None:
    """Whether the topics that become mirrors, or are none any more, may.

    Raises:
        ApiError: TOPIC_ALREADY_EXISTS, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION.
    """
    old = state.configs.get(_ALL_BROKERS, {})
    fail_back = {parts[2] for parts in _mirrors_that_become(changed, MirrorState.FAILBACK)}
    for key in (*changed, *removed):
        parts = split_key(key)
        if parts is None or not parts[2]:
            _check_prefix(old, removed, parts)
            continue
        if parts[2] in fail_back:
            # The same change removes the setting by which the topic was promoted.
            _check_fail_back(state, old, changed, parts)
            continue
        _check_failing_back(state, old, changed, parts)
        _check_promoted(state, old, changed, parts)
        if parts[1] != "mirror":
            continue
        if key in changed:
            _check_name({**old, **changed}, parts[0], parts[2])
        if parts[2] not in state.topic_ids:
            continue
        if key not in old:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"Topic '{parts[2]}' exists and has records of its own: it cannot become a mirror.",
            )
        if key in removed:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{parts[2]}' is a mirror for as long as it exists.")


def _check_prefix(old: Mapping[str, str], removed: Collection[str], parts: Parts | None) -> None:
    """Whether a setting of a link may change: its prefix comes and goes with the link, as mirrors are named so."""
    if parts is None or parts[1] != PREFIX:
        return
    link = bootstrap_key(parts[0])
    if link in old and link not in removed:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The prefix of link {parts[0]} cannot change: delete the link, and create it with another.",
        )


def _mirrors_that_become(changed: Mapping[str, str], wanted: MirrorState) -> list[Parts]:
    found = ((split_key(key), text) for key, text in changed.items())
    return [parts for parts, text in found if parts is not None and parts[1] == "mirror" and text == wanted]


def _check_fail_back(state: ControllerState, old: Mapping[str, str], changed: Mapping[str, str], parts: Parts) -> None:
    """Whether a topic that exists may become the mirror of one that was made of it (ADR 0021)."""
    link, what, topic = parts
    if what == "mirror" and old.get(mirror_key(link, what, topic)) not in (None, MirrorState.PROMOTED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' is a mirror of link {link} already.")
    if what in ("leader.epoch", "own.from") and mirror_key(link, what, topic) in changed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The leader epochs of '{topic}' are given with its failback.")
    if what != "mirror" or mirror_key(link, what, topic) not in changed:
        return
    _check_name({**old, **changed}, link, topic)
    if topic not in state.topic_ids:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    if mirror_key(link, "agreed.below", topic) not in {**old, **changed}:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"What '{topic}' has in common with its source is given with its failback."
        )
    if mirror_key(link, "source.id", topic) not in {**old, **changed}:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The source's id of '{topic}' is given with its failback.")
    if other := other_source(old, link, topic, {**old, **changed}[mirror_key(link, "source.id", topic)]):
        # Records of two sources may have the same leader epoch and offset: so their histories cannot be compared.
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' has records of another source, by link {other}.")
    _check_room(state, topic)


def _check_failing_back(
    state: ControllerState, old: Mapping[str, str], changed: Mapping[str, str], parts: Parts
) -> None:
    """Check a change of a topic's mirror state during a failback, before its log is cut."""
    link, what, topic = parts
    key = mirror_key(link, what, topic)
    is_failing_back = old.get(mirror_key(link, "mirror", topic)) == MirrorState.FAILBACK
    cut, begun = cut_partition(what), begun_partition(what)
    partition_id = begun if cut is None else cut
    if what in ("agreed.below", "own.from", "source.topic") or (partition_id is not None and not is_failing_back):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' is not being failed back by link {link}.")
    if not is_failing_back:
        return
    partitions = [number for number, _ in state.topic_partitions(state.topics[state.topic_ids[topic]])]
    if partition_id is not None and partition_id not in partitions:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition_id}.")
    if partition_id is not None and key in changed:
        if problem := value_problem(what, changed[key]):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{key} {problem}")
        leader_epoch = int(changed[key]) if cut is None else parse_cut(changed[key])[1]
        if leader_epoch != state.partitions[(state.topic_ids[topic], partition_id)].leader_epoch:
            # Of a former leader, or of a failback before: what this leader holds is not looked at any more then.
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {leader_epoch} of {topic}-{partition_id} is over."
            )
    wanted = changed.get(key) if what == "mirror" else None
    if wanted == MirrorState.PAUSED:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' is being failed back: it is not a mirror yet.")
    if wanted == MirrorState.ACTIVE:
        known = {**old, **changed}
        uncut = [each for each in partitions if mirror_key(link, f"cut.{each}", topic) not in known]
        if uncut:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Partitions {uncut} of '{topic}' are not cut to what the source has."
            )


def _check_promoted(state: ControllerState, old: Mapping[str, str], changed: Mapping[str, str], parts: Parts) -> None:
    link, _, topic = parts
    key = mirror_key(link, "mirror", topic)
    if old.get(key) == MirrorState.PROMOTED:
        # Its leaders know by these settings which records are the source's.
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' was promoted: it is not a mirror any more.")
    if changed.get(key) != MirrorState.PROMOTED:
        return
    if topic not in state.topic_ids:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    if mirror_key(link, "leader.epoch", topic) in changed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The leader epoch of '{topic}' is given with its promotion.")
    _check_room(state, topic)


def _check_room(state: ControllerState, topic: str) -> None:
    if (first := _first_own_epoch(state, topic)) > MAX_EPOCH:
        # No broker would take it, nor any later change of these settings.
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{topic}' would get leader epoch {first}, above {MAX_EPOCH}.")


def _check_name(settings: Mapping[str, str], link: str, topic: str) -> None:
    check_topic_name(topic)
    at_source = source_topic(settings, link, topic)
    if at_source is None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic}' does not begin with {settings[setting_key(link, PREFIX)]}, the prefix of link {link}.",
        )
    for name in (topic, at_source):
        if name in INTERNAL_TOPICS or name == METADATA_TOPIC:
            # The coordinators and the quorum of its own cluster write to it.
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is internal: it cannot be a mirror.")


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
    """Records that give the partitions of promoted mirrors a leader epoch of this cluster.

    It is one epoch for all partitions, above the epochs of all records of the source. Topics in a failback get one too,
    so no earlier leader continues.
    """
    records: list[Any] = []
    for link, _, topic in (
        *_mirrors_that_become(changed, MirrorState.PROMOTED),
        *_mirrors_that_become(changed, MirrorState.FAILBACK),
    ):
        topic_id = state.topic_ids[topic]
        first = _first_own_epoch(state, topic)
        values = {"leader.epoch": first}
        if changed[mirror_key(link, "mirror", topic)] == MirrorState.FAILBACK:
            values["own.from"] = _own_from(state, topic)
        for what, value in values.items():
            name = mirror_key(link, what, topic)
            records.append(ConfigRecord(resource_type=_ALL_BROKERS[0], resource_name="", name=name, value=str(value)))
        for partition_id, partition in state.topic_partitions(state.topics[topic_id]):
            own = replace(partition, leader_epoch=first, partition_epoch=partition.partition_epoch + 1)
            records.append(partition_record(topic_id, partition_id, own, state.metadata_version))
    return records


def _own_from(state: ControllerState, topic: str) -> int:
    """The first leader epoch of a topic's own records, without those of a source.

    If the failback is cancelled, this cluster's coordinators end the transactions of these records.
    """
    settings = state.configs.get(_ALL_BROKERS, {})
    return own_from(settings).get(topic, ended_mirrors(settings).get(topic, 0))


def ended_failbacks(state: ControllerState, changed: Mapping[str, str]) -> list[Any]:
    """Records that delete the cuts and other settings of failbacks that have ended or were cancelled.

    A failback ends when its topic is a mirror or is promoted; a cancelled one is removed with the next. A promoted
    topic was not cut, or not yet: it has records of its own below its new epoch, so that epoch is not common with the
    source, which is removed too.
    """
    old = state.configs.get(_ALL_BROKERS, {})
    ended = {
        (link, topic)
        for wanted in (MirrorState.ACTIVE, MirrorState.PROMOTED)
        for link, _, topic in _mirrors_that_become(changed, wanted)
        if old.get(mirror_key(link, "mirror", topic)) == MirrorState.FAILBACK
    }
    begun = {(link, topic) for link, _, topic in _mirrors_that_become(changed, MirrorState.FAILBACK)}
    return [
        ConfigRecord(resource_type=_ALL_BROKERS[0], resource_name="", name=key, value=None)
        for key in ({**old, **changed} if ended else ())
        if (parts := split_key(key)) is not None and _ends_with_failback(parts, changed) and parts[::2] in ended
    ] + [
        ConfigRecord(resource_type=_ALL_BROKERS[0], resource_name="", name=key, value=None)
        for key in old
        if (parts := split_key(key)) is not None and begun_partition(parts[1]) is not None and parts[::2] in begun
    ]


def _ends_with_failback(parts: Parts, changed: Mapping[str, str]) -> bool:
    link, what, topic = parts
    is_given_up = changed.get(mirror_key(link, "mirror", topic)) == MirrorState.PROMOTED
    if what in ("source.id", "source.topic"):
        return is_given_up
    if what == "own.from" or begun_partition(what) is not None:
        return not is_given_up  # its leaders are to know what they end
    return cut_partition(what) is not None


def _first_own_epoch(state: ControllerState, topic: str) -> int:
    """Above each leader epoch that a record of the source has."""
    partitions = state.topic_partitions(state.topics[state.topic_ids[topic]])
    return max([first_leader_epoch(state, topic), *(partition.leader_epoch for _, partition in partitions)]) + 1


def first_leader_epoch(state: ControllerState, topic: str) -> int:
    """The leader epoch of a new partition."""
    return floor_of(mirror_settings(state, topic), topic)


def mirror_settings(state: ControllerState, topic: str) -> Mapping[str, str]:
    """The settings of links that are of a topic's mirror.

    They are looked up by topic: a request that names thousands of topics would search all settings for each.
    """
    settings = state.configs.get(_ALL_BROKERS)
    if settings is None:
        return {}
    known, by_topic = state.mirror_settings
    if known is not settings:
        by_topic = {}
        for key, value in settings.items():
            parts = split_key(key) if key.startswith(LINK_PREFIX) else None
            if parts is not None and parts[2]:
                by_topic.setdefault(parts[2], {})[key] = value
        state.mirror_settings = settings, by_topic
    return by_topic.get(topic, {})


def end_of_mirror(state: ControllerState, topic: str) -> list[ConfigRecord]:
    """Records that take the settings of a mirror away, with its topic."""
    return [
        ConfigRecord(resource_type=_ALL_BROKERS[0], resource_name="", name=key, value=None)
        for key in mirror_settings(state, topic)
        if (parts := split_key(key)) is not None and parts[1] != "bootstrap.servers"
    ]
