"""Selects the replica from which a consumer reads (KIP-392). Pure.

`replica.selector.class` names Kafka's classes, with or without their package. Without it, everyone reads from leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Candidate:
    """An in-sync replica that has the requested offset."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    is_leader: bool


# (the consumer's rack, candidates with the leader among them) -> broker id
Selector = Callable[[str, Sequence[Candidate]], int]


def leader(rack: str, candidates: Sequence[Candidate]) -> int:
    """The leader."""
    return next(each.broker_id for each in candidates if each.is_leader)


def rack_aware(rack: str, candidates: Sequence[Candidate]) -> int:
    """The leader if it is in the consumer's rack, else the most caught up replica there, else the leader."""
    near = [each for each in candidates if each.rack == rack]
    if not near or any(each.is_leader for each in near):
        return leader(rack, candidates)
    return max(near, key=lambda each: (each.log_end_offset, -each.broker_id)).broker_id


_SELECTORS: dict[str, Selector] = {"LeaderSelector": leader, "RackAwareReplicaSelector": rack_aware}
_PACKAGE = "org.apache.kafka.common.replica."


def selector_named(name: str | None) -> Selector | None:
    """The selector of a setting; None where consumers are never sent elsewhere.

    Raises:
        ConfigError: there is none of that name; plug-ins in Java cannot be loaded.
    """
    if not name:
        return None
    found = _SELECTORS.get(name.removeprefix(_PACKAGE))
    if found is None:
        known = ", ".join(_PACKAGE + each for each in _SELECTORS)
        raise ConfigError([f"replica.selector.class={name}: must be one of {known}"])
    return None if found is leader else found
