"""Feature levels: those of this node and of a new cluster, and the changes of each level.

A feature is a name with a finalized level of the whole cluster; every node reports its supported levels.
`metadata.version` determines the version of each metadata record. Levels, names and needs are
those of Kafka 4.4.0 (KIP-584, KIP-778, KIP-1022), from its `MetadataVersion` and `Feature` tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
ELR_VERSION = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True)
class MetadataLevel:
    """One level of `metadata.version`.

    Attributes:
        level: the number that is finalized and stored.
        name: Kafka's name for it, as `4.3-IV0`.
        did_metadata_change: going below it would lose records, so no downgrade crosses it.
    """

    level: int
    name: str
    did_metadata_change: bool

    @property
    def release(self) -> str:
        """The release that brought it, as `4.3`."""
        return self.name.partition("-")[0]


METADATA_LEVELS = tuple(
    MetadataLevel(level, name, changed)
    for level, name, changed in (
        (7, "3.3-IV3", True),
        (8, "3.4-IV0", True),
        (9, "3.5-IV0", False),
        (10, "3.5-IV1", False),
        (11, "3.5-IV2", True),
        (12, "3.6-IV0", False),
        (13, "3.6-IV1", True),
        (14, "3.6-IV2", True),
        (15, "3.7-IV0", True),
        (16, "3.7-IV1", False),
        (17, "3.7-IV2", True),
        (18, "3.7-IV3", False),
        (19, "3.7-IV4", False),
        (20, "3.8-IV0", False),
        (21, "3.9-IV0", False),
        (22, "4.0-IV0", False),
        (23, "4.0-IV1", True),
        (24, "4.0-IV2", False),
        (25, "4.0-IV3", False),
        (26, "4.1-IV0", False),
        (27, "4.1-IV1", False),
        (28, "4.2-IV0", False),
        (29, "4.2-IV1", False),
        (30, "4.3-IV0", True),
        (31, "4.4-IV0", False),
        (32, "4.4-IV1", True),
        (33, "4.4-IV2", True),
    )
)

MIN_METADATA_VERSION = METADATA_LEVELS[0].level
LATEST_METADATA_VERSION = METADATA_LEVELS[-1].level
# A new cluster begins here: Kafka 4.3.1, whose tools and broker are the newest that are complete, reads it. A later
# level is one `upgrade` away, and could not be taken back (4.4-IV1 and 4.4-IV2 change records).
DEFAULT_METADATA_VERSION = 30

# The first levels of features that the controller checks.
SCRAM_CREDENTIALS = 11
DELEGATION_TOKENS = 14
CONTROLLER_REGISTRATION = 15
DIRECTORY_ASSIGNMENT = 17
ELR = 23
CORDONED_LOG_DIRS = 30


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """One level of a feature: from which metadata.version a new cluster gets it, and what it needs."""

    level: int
    bootstrap_metadata_version: int
    needs: Mapping[str, int] = field(default_factory=dict)


# Up to where a cluster can be brought: nothing that this software answers is behind the levels above. 4.4-IV1 has ACLs
# for ranges of addresses, 4.4-IV2 UnregisterController. A cluster that Kafka formatted may have such levels finalized,
# and its directory is to be started all the same: nodes register all levels of Kafka's.
_HIGHEST_OFFERED = {METADATA_VERSION: 31, SHARE_VERSION: 0, STREAMS_VERSION: 0}

# kraft.version lives in the control records of the quorum, not in the metadata records.
FEATURES: Mapping[str, tuple[FeatureLevel, ...]] = MappingProxyType(
    {
        KRAFT_VERSION: (FeatureLevel(0, 7), FeatureLevel(1, 21)),
        TRANSACTION_VERSION: (FeatureLevel(0, 7), FeatureLevel(1, 24), FeatureLevel(2, 24)),
        GROUP_VERSION: (FeatureLevel(0, 7), FeatureLevel(1, 22)),
        ELR_VERSION: (FeatureLevel(0, 7), FeatureLevel(1, 26, {METADATA_VERSION: 23})),
        SHARE_VERSION: (FeatureLevel(0, 7), FeatureLevel(1, 28), FeatureLevel(2, 31)),
        STREAMS_VERSION: (FeatureLevel(0, 7), FeatureLevel(1, 29)),
    }
)


@dataclass(frozen=True, slots=True)
class LevelRange:
    """Both inclusive."""

    min_level: int
    max_level: int

    def contains(self, level: int) -> bool:
        """Whether `level` lies within."""
        return self.min_level <= level <= self.max_level


def supported_features() -> dict[str, LevelRange]:
    """The levels that a node of this software supports, by feature name, as brokers and controllers register them."""
    supported = {METADATA_VERSION: LevelRange(MIN_METADATA_VERSION, LATEST_METADATA_VERSION)}
    for name, levels in FEATURES.items():
        supported[name] = LevelRange(0, levels[-1].level)
    return supported


def offered_features(finalized: Mapping[str, int]) -> dict[str, LevelRange]:
    """The levels that a cluster can get: those that are implemented, and those that it has already."""
    return {
        name: LevelRange(
            levels.min_level,
            max(_HIGHEST_OFFERED.get(name, levels.max_level), min(levels.max_level, finalized.get(name, 0))),
        )
        for name, levels in supported_features().items()
    }


def default_levels(metadata_version: int) -> dict[str, int]:
    """The levels above zero that a new cluster of this metadata.version begins with, metadata.version included.

    kraft.version is left out: the formatter of a node chooses it by the kind of quorum. So are features that this
    software has no API for.
    """
    levels = {METADATA_VERSION: metadata_version}
    for name, known in FEATURES.items():
        if name == KRAFT_VERSION or name in _HIGHEST_OFFERED:
            continue
        level = max(
            known_level.level for known_level in known if known_level.bootstrap_metadata_version <= metadata_version
        )
        if level > 0:
            levels[name] = level
    return levels


def metadata_level(text: str) -> MetadataLevel:
    """Find a level by `4.3`, which is the last of that release that is offered, by `4.3-IV0` or its number.

    Raises:
        ValueError: no such level, with the known range in the text.
    """
    found = None
    for level in METADATA_LEVELS:
        offered = level.level <= _HIGHEST_OFFERED[METADATA_VERSION]
        if text in (level.name, str(level.level)) or (text == level.release and offered):
            found = level
    if found is None:
        first, last = METADATA_LEVELS[0].name, METADATA_LEVELS[-1].name
        raise ValueError(f"unknown metadata.version {text}: known are {first} to {last}")
    return found


def metadata_name(level: int) -> str:
    """Kafka's name of a level of metadata.version, or the number if it has none."""
    return next((known.name for known in METADATA_LEVELS if known.level == level), str(level))


def downgrade_loses_metadata(from_level: int, to_level: int) -> bool:
    """Whether any level in (to_level, from_level] changed the metadata records."""
    return any(level.did_metadata_change for level in METADATA_LEVELS if to_level < level.level <= from_level)


def unmet_need(name: str, level: int, finalized: Mapping[str, int]) -> str | None:
    """The unmet requirement of `level` of a feature, given all other levels; None if there is none."""
    for known in FEATURES.get(name, ()):
        if known.level == level:
            for needed, at_least in known.needs.items():
                if finalized.get(needed, 0) < at_least:
                    return f"{name} level {level} needs {needed} at level {at_least} or above"
    return None


def record_version(record: Any, metadata_version: int) -> int:
    """The version in which a metadata record is written at this metadata.version; 0 for all but four kinds."""
    kind = type(record).__name__
    if kind == "RegisterBrokerRecord":
        return 4 if metadata_version >= 30 else 3 if metadata_version >= 17 else 2 if metadata_version >= 8 else 1
    if kind == "BrokerRegistrationChangeRecord":
        return 3 if metadata_version >= 30 else 2 if metadata_version >= 17 else 1
    if kind in ("PartitionRecord", "PartitionChangeRecord"):
        return 2 if metadata_version >= ELR else 1 if metadata_version >= DIRECTORY_ASSIGNMENT else 0
    return 0
