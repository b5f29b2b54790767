"""Links to other clusters, and mirrors of their topics: cluster-wide settings, `odradek.link.…`.

A link has a name and the addresses of a cluster. A mirror is a copy of a topic there, with the same name, or the name
without the link's prefix. ADR 0018 explains why these are settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from odradek.common.topic_names import topic_name_problem
from odradek.settings.link_names import PREFIX, source_name
from odradek.settings.link_settings import LINK_SECRETS, LINK_SETTINGS, login_problem, setting_problem

LINK_PREFIX = "odradek.link."
_OF_LINKS = "|".join(map(re.escape, ("bootstrap.servers", *sorted(LINK_SETTINGS))))
_OF_MIRRORS = r"mirror|source\.id|source\.topic|leader\.epoch|agreed\.below|own\.from|(?:cut|begun)\.[0-9]{1,9}"
_KEY = re.compile(rf"odradek\.link\.([A-Za-z0-9_-]+)\.(?:({_OF_LINKS})|({_OF_MIRRORS})\.([A-Za-z0-9._-]+))")
# Far below the maximum of the field, since elections here continue from a source's epoch.
MAX_EPOCH = 2**30
# The limit of a source's epoch, so that epochs remain for elections here, and for the end of the mirror.
MAX_SOURCE_EPOCH = 2**29
MAX_PORT = 65_535
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class MirrorState(StrEnum):
    """The target state of a mirror; a promoted topic is not a mirror any more, until a failback."""

    ACTIVE = "active"
    PAUSED = "paused"
    PROMOTED = "promoted"
    FAILBACK = "failback"


@dataclass(slots=True)
class Mirror:
    """A topic that mirrors one of the source.

    Attributes:
        topic: its name here.
        source_id: the topic's id at the source, None until it is known.
        leader_epoch: the minimum of its partitions' leader epochs.
        agreed_below: of an old source, the first own leader epoch of the source: both logs can agree only below it
            (ADR 0021); else 0.
        cuts: the completed cuts of its partitions, during a failback.
        source_topic: the name at the source; by default the same.
    """

    link: str
    topic: str
    state: MirrorState
    source_id: UUID | None = None
    leader_epoch: int = 0
    agreed_below: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    source_topic: str = ""

    def __post_init__(self) -> None:
        self.source_topic = self.source_topic or self.topic

    def key(self, what: str) -> str:
        """The name of one of its settings, as `mirror_key`."""
        return mirror_key(self.link, what, self.topic)


@dataclass(slots=True)
class Link:
    """A cluster that is mirrored, `host:port,…`.

    Attributes:
        settings: those of LINK_SETTINGS that are set, as they are stored: secrets are sealed.
        promoted: topics that were mirrors.
    """

    name: str
    bootstrap_servers: str
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    promoted: set[str] = field(default_factory=set)

    @property
    def prefix(self) -> str:
        """The prefix of mirrors' names; empty for none."""
        return self.settings.get(PREFIX, "")

    @property
    def by_source(self) -> dict[str, Mirror]:
        """The mirrors, by the names of their topics at the source."""
        return {mirror.source_topic: mirror for mirror in self.mirrors.values()}


def bootstrap_key(link: str) -> str:
    """The setting that creates a link."""
    return f"{LINK_PREFIX}{link}.bootstrap.servers"


def setting_key(link: str, name: str) -> str:
    """A setting of a link, one of LINK_SETTINGS."""
    return f"{LINK_PREFIX}{link}.{name}"


def mirror_key(link: str, what: str, topic: str) -> str:
    """The key of a mirror's setting; `topic` is the name in this cluster.

    `what` is `mirror`, `source.id`, `source.topic`, `leader.epoch`, `agreed.below`, `own.from`, `cut.PARTITION`, or
    `begun.PARTITION`.
    """
    return f"{LINK_PREFIX}{link}.{what}.{topic}"


def split_key(key: str) -> tuple[str, str, str] | None:
    """(link, what, topic) of a setting; the link's own settings have no topic. None for other settings."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    return match[1], match[2] or match[3], match[4] or ""


def source_topic(settings: Mapping[str, str], link: str, topic: str) -> str | None:
    """The name at the source of a mirror's topic: one that was failed back may have any (ADR 0021).

    None where no topic of the link has such a mirror.
    """
    given = settings.get(mirror_key(link, "source.topic", topic), "")
    if given and not value_problem("source.topic", given):
        return given
    return source_name(settings.get(setting_key(link, PREFIX), ""), topic)


def mirrored_topics(settings: Mapping[str, str]) -> frozenset[str]:
    """The topics that are mirrors, by the settings of all brokers together."""
    return frozenset(topic for _, topic, state in _states(settings) if state != MirrorState.PROMOTED)


def failing_back(settings: Mapping[str, str]) -> frozenset[str]:
    """The topics that are to become mirrors, and may have records that the source has not (ADR 0021)."""
    return frozenset(topic for _, topic, state in _states(settings) if state == MirrorState.FAILBACK)


def was_failed_back(settings: Mapping[str, str], topic: str) -> bool:
    """Whether a topic is or was in a failback."""
    end = f".agreed.below.{topic}"
    found = (split_key(key) for key in settings if key.endswith(end) and key.startswith(LINK_PREFIX))
    return any(each is not None and each[1:] == ("agreed.below", topic) for each in found)


def cut_text(offset: int, leader_epoch: int) -> str:
    """The value of `cut.PARTITION`: where the leader of an epoch cut it. A later failback has later epochs."""
    return f"{offset}@{leader_epoch}"


def parse_cut(text: str) -> tuple[int, int]:
    """(offset, leader epoch) of a value of `cut.PARTITION`. Raises ValueError."""
    offset, _, leader_epoch = text.partition("@")
    return int(offset), int(leader_epoch)


def cut_partition(what: str) -> int | None:
    """The partition that a setting `cut.PARTITION` is of; None for other settings."""
    head, _, number = what.rpartition("cut.")
    return int(number) if not head and number.isdecimal() else None


def begun_partition(what: str) -> int | None:
    """The partition of a setting `begun.PARTITION`, which a leader sets before a cut; None for other settings."""
    head, _, number = what.rpartition("begun.")
    return int(number) if not head and number.isdecimal() else None


def begun_cuts(settings: Mapping[str, str]) -> frozenset[tuple[str, int]]:
    """(topic, partition) of those that a leader has cut, or was to cut, since their last failback began."""
    split = [split_key(key) for key in settings if key.startswith(LINK_PREFIX)]
    found = [(parts[2], begun_partition(parts[1])) for parts in split if parts is not None]
    return frozenset((topic, number) for topic, number in found if number is not None)


def ended_mirrors(settings: Mapping[str, str]) -> dict[str, int]:
    """The topics that were mirrors, and the first leader epoch of each that is no source's (ADR 0020)."""
    ended: dict[str, int] = {}
    for link, topic, state in _states(settings):
        floor = settings.get(mirror_key(link, "leader.epoch", topic), "")
        if state == MirrorState.PROMOTED and not value_problem("leader.epoch", floor):
            ended[topic] = int(floor)
    return ended


def own_from(settings: Mapping[str, str]) -> dict[str, int]:
    """The first leader epoch without records of any source, for topics that are or were in a failback.

    After a cancelled failback it is below the epoch at which the topic ended to be a mirror.
    """
    found: dict[str, int] = {}
    for key, text in settings.items():
        parts = split_key(key) if key.startswith(LINK_PREFIX) else None
        if parts is not None and parts[1] == "own.from" and not value_problem(parts[1], text):
            found[parts[2]] = int(text)
    return found


def other_source(settings: Mapping[str, str], link: str, topic: str, source_id: str) -> str | None:
    """The link to another source that gave a topic records in a failback; None if there is none.

    After a cancelled failback the source's id is removed: then the same link means the same source, and the topic has
    no records of any source if `own.from` is 0.
    """
    for key in settings:
        parts = split_key(key) if key.startswith(LINK_PREFIX) else None
        if parts is None or parts[1:] != ("agreed.below", topic):
            continue
        known = settings.get(mirror_key(parts[0], "source.id", topic))
        has_other = known is not None and known != source_id
        is_unknown = known is None and parts[0] != link
        if has_other or (is_unknown and own_from(settings).get(topic, 0) > 0):
            return parts[0]
    return None


@dataclass(frozen=True, slots=True)
class Promotion:
    """The promotion of a topic that was a mirror.

    Attributes:
        first_epoch: records with lower leader epochs are of the source.
        source_id: the id of the source's topic; None if it was never known.
    """

    link: str
    first_epoch: int
    source_id: UUID | None


def promotions_of(settings: Mapping[str, str]) -> dict[str, Promotion]:
    """The topics that were mirrors, by the settings of all brokers together."""
    links = {topic: link for link, topic, state in _states(settings) if state == MirrorState.PROMOTED}
    found: dict[str, Promotion] = {}
    for topic, first in ended_mirrors(settings).items():
        text = settings.get(mirror_key(links[topic], "source.id", topic), "")
        is_known = bool(text) and not value_problem("source.id", text)
        found[topic] = Promotion(links[topic], first, UUID(text) if is_known else None)
    return found


def _states(settings: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(link, topic, state) of all that are or were mirrors."""
    return [
        (parts[0], parts[2], text)
        for key, text in settings.items()
        if key.startswith(LINK_PREFIX) and (parts := split_key(key)) is not None and parts[1] == "mirror"
    ]


def links_of(settings: Mapping[str, str]) -> dict[str, Link]:
    """The links in the cluster-wide settings. Invalid values are ignored, so that no broker stops."""
    found = [(parts, text) for key, text in settings.items() if (parts := split_key(key)) is not None]
    links = {
        link: Link(link, text)
        for (link, what, _), text in found
        if what == "bootstrap.servers" and not value_problem(what, text)
    }
    for (name, what, topic), text in found:
        if name not in links or value_problem(what, text):
            continue
        if what == "mirror" and text == MirrorState.PROMOTED:
            links[name].promoted.add(topic)
        elif what == "mirror" and (at_source := source_topic(settings, name, topic)):
            links[name].mirrors[topic] = Mirror(name, topic, MirrorState(text), source_topic=at_source)
        elif what in LINK_SETTINGS:
            links[name].settings[what] = text
    for (name, what, topic), text in found:
        mirror = links[name].mirrors.get(topic) if name in links else None
        if mirror is not None and not value_problem(what, text):
            _set_value(mirror, what, text)
    return links


def _set_value(mirror: Mirror, what: str, text: str) -> None:
    if what == "source.id":
        mirror.source_id = UUID(text)
    elif what == "leader.epoch":
        mirror.leader_epoch = int(text)
    elif what == "agreed.below":
        mirror.agreed_below = int(text)
    elif (number := cut_partition(what)) is not None:
        mirror.cuts[number] = parse_cut(text)[0]


def floor_of(settings: Mapping[str, str], topic: str) -> int:
    """The lowest leader epoch that partitions of a topic may have: 0 for all that never were mirrors."""
    end = f".leader.epoch.{topic}"
    found = [key for key in settings if key.endswith(end) and key.startswith(LINK_PREFIX)]
    parts = [(split_key(key), settings[key]) for key in found]
    floors = [text for each, text in parts if each is not None and each[1:] == ("leader.epoch", topic)]
    return max((int(text) for text in floors if not value_problem("leader.epoch", text)), default=0)


def value_problem(what: str, text: str) -> str:
    """Why a value is invalid; empty if it is valid."""
    if what in LINK_SETTINGS:
        return setting_problem(what, text)
    if what == "mirror":
        return "" if text in set(MirrorState) else "must be active, paused, promoted or failback"
    if cut_partition(what) is not None:
        return "" if re.fullmatch(r"[0-9]{1,18}@[0-9]{1,10}", text) else "must be OFFSET@LEADER_EPOCH"
    if what in ("leader.epoch", "agreed.below", "own.from") or begun_partition(what) is not None:
        is_epoch = re.fullmatch(r"[0-9]{1,10}", text) is not None and int(text) <= MAX_EPOCH
        return "" if is_epoch else f"must be a leader epoch of at most {MAX_EPOCH}"
    if what == "source.topic":
        return topic_name_problem(text) or ""
    if what == "source.id":
        try:
            UUID(text)
        except ValueError:
            return "must be a topic id"
        return ""
    found = [_ADDRESS.fullmatch(part.strip()) for part in text.split(",")]
    return "" if all(each and 0 < int(each[1]) <= MAX_PORT for each in found) else "must be host:port,…"


def link_problems(resource_name: str, settings: Mapping[str, str]) -> list[str]:
    """The problems of the settings of links, of each alone and of all together."""
    given = {key: text for key, text in settings.items() if key.startswith(LINK_PREFIX)}
    if given and resource_name:
        return [f"{next(iter(given))} is a setting of all brokers together, not of one"]
    problems: list[str] = []
    of_topic: dict[str, str] = {}
    for key, text in given.items():
        parts = split_key(key)
        if parts is None:
            problems.append(f"{key} is not a setting of a link")
            continue
        name, what, topic = parts
        if problem := value_problem(what, text):
            problems.append(f"{key} {problem}" if what in LINK_SECRETS else f"{key}={text} {problem}")
        is_over = settings.get(mirror_key(name, "mirror", topic)) == MirrorState.PROMOTED
        if what != "bootstrap.servers" and bootstrap_key(name) not in settings and not is_over:
            problems.append(f"{key}: there is no link {name}")
        if what == "mirror" and of_topic.setdefault(topic, name) != name:
            problems.append(f"{topic} is a mirror of link {of_topic[topic]} already")
        if topic and what != "mirror" and mirror_key(name, "mirror", topic) not in settings:
            problems.append(f"{key}: {topic} is not a mirror of link {name}")
    problems += _shared_sources(given)
    return problems or [
        f"{bootstrap_key(name)}: {problem}"
        for name, link in links_of(given).items()
        if (problem := login_problem(link.settings))
    ]


def _shared_sources(settings: Mapping[str, str]) -> list[str]:
    """Mirrors of a topic that has one by the same link already: a fetch session has a topic once."""
    problems: list[str] = []
    of_source: dict[tuple[str, str], str] = {}
    for link, topic, state in _states(settings):
        if state == MirrorState.PROMOTED:
            continue
        name = source_topic(settings, link, topic)
        if name is not None and of_source.setdefault((link, name), topic) != topic:
            problems.append(f"{name} of link {link} has a mirror already: {of_source[link, name]}")
    return problems
