"""Where replicas go: stripes over racks from a random start, as KRaft does.

Each partition begins on the next rack and takes brokers from the racks in turn, so that a partition is on as many racks
as it has copies, and leaders alternate over racks and over the brokers of each rack. Fenced brokers come last, never
first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that replicas may go to."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """The brokers of one rack; the rings of leaders and of followers turn on their own."""

    def __init__(self, brokers: list[int], random: Random) -> None:
        self.brokers = brokers
        self.leading = random.randrange(len(brokers)) if brokers else 0
        self.following = random.randrange(len(brokers)) if brokers else 0

    def take(self, used: set[int], *, lead: bool) -> int | None:
        """The next broker that is not used yet."""
        start = self.leading if lead else self.following
        inside = [place for place, broker_id in enumerate(self.brokers) if broker_id in used]
        if inside:
            start = inside[-1] + 1  # a further copy in the same rack lies beside the one before
        for step in range(len(self.brokers)):
            place = (start + step) % len(self.brokers)
            if self.brokers[place] not in used:
                if lead:
                    self.leading = place + 1
                elif not inside:
                    self.following = place + 1
                return self.brokers[place]
        return None


def place_replicas(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """Choose the replicas of each new partition; the first of each leads.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR where there are fewer brokers, or all are fenced.
    """
    usable = sorted(brokers, key=lambda broker: broker.broker_id)
    _check_replication_factor(usable, replication_factor)
    racks = sorted({broker.rack or "" for broker in usable})
    live = {rack: _ring(usable, rack, False, random) for rack in racks}
    fenced = {rack: _ring(usable, rack, True, random) for rack in racks}
    racks = [rack for rack in racks if live[rack].brokers] + [rack for rack in racks if not live[rack].brokers]
    leading = [rack for rack in racks if live[rack].brokers]
    start = random.randrange(len(leading))
    placed = []
    for partition in range(partition_count):
        first = leading[(start + partition) % len(leading)]
        turn = racks.index(first)
        order = racks[turn:] + racks[:turn]
        placed.append(_place_one(order, live, fenced, replication_factor))
    return placed


def _check_replication_factor(usable: list[UsableBroker], replication_factor: int) -> None:
    if replication_factor > len(usable):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered.",
        )
    if all(broker.fenced for broker in usable):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced.",
        )


def _ring(brokers: list[UsableBroker], rack: str, fenced: bool, random: Random) -> _Ring:
    members = [broker.broker_id for broker in brokers if (broker.rack or "") == rack and broker.fenced == fenced]
    random.shuffle(members)
    return _Ring(members, random)


def _place_one(
    order: list[str], live: dict[str, _Ring], fenced: dict[str, _Ring], replication_factor: int
) -> tuple[int, ...]:
    chosen: list[int] = []
    used: set[int] = set()
    # A rack gives a live broker where it has one left, else a fenced one: racks count for more, as fencing passes.
    while len(chosen) < replication_factor:
        for rack in order:
            broker_id = live[rack].take(used, lead=not chosen)
            if broker_id is None and chosen:
                broker_id = fenced[rack].take(used, lead=False)
            if broker_id is not None:
                chosen.append(broker_id)
                used.add(broker_id)
            if len(chosen) == replication_factor:
                break
    return tuple(chosen)
