"""Placement of replicas: stripes over racks from a random start, as in KRaft, and over the hosts of each rack.

Each partition begins on the next rack and takes brokers from the racks in turn, so that a partition is on as many racks
as it has replicas, and leaders alternate over racks and over the brokers of each rack. Fenced brokers come last, never
first. If several brokers share a host (`broker.host`), a host gets a second replica of a partition only if the racks
whose turn it is have no host without one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from random import Random


# How many partitions are placed in one step, some 20 us each with three brokers, and more with more of them.
PLACEMENTS_PER_STEP = 200


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that can get replicas."""

    broker_id: int
    rack: str | None
    fenced: bool
    host: str | None = None


class _Ring:
    """The brokers of one rack; leaders and followers have separate positions."""

    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self.brokers = [broker.broker_id for broker in brokers]
        self._hosts = {broker.broker_id: broker.host for broker in brokers}
        self.leading = random.randrange(len(brokers)) if brokers else 0
        self.following = random.randrange(len(brokers)) if brokers else 0

    def has_free_host(self, used: Mapping[int, str | None]) -> bool:
        """Whether an unused broker is on an unused host."""
        return any(self._is_alone(broker_id, used) for broker_id in self.brokers)

    def next_broker(self, used: Mapping[int, str | None], *, lead: bool) -> int | None:
        """The next unused broker, on an unused host if possible.

        Args:
            used: the brokers that have a replica of the partition, each with its host.
        """
        start = self.leading if lead else self.following
        inside = [place for place, broker_id in enumerate(self.brokers) if broker_id in used]
        if inside:
            start = inside[-1] + 1  # a further replica in the same rack is on the broker after the last
        places = [(start + step) % len(self.brokers) for step in range(len(self.brokers))]
        free = [place for place in places if self.brokers[place] not in used]
        if not free:
            return None
        place = next((place for place in free if self._is_alone(self.brokers[place], used)), free[0])
        if lead:
            self.leading = place + 1
        elif not inside:
            self.following = place + 1
        return self.brokers[place]

    def host_of(self, broker_id: int) -> str | None:
        return self._hosts[broker_id]

    def _is_alone(self, broker_id: int, used: Mapping[int, str | None]) -> bool:
        host = self._hosts[broker_id]
        return broker_id not in used and (host is None or host not in used.values())


def place_replicas(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, random: Random
) -> Generator[None, None, list[tuple[int, ...]]]:
    """Choose the replicas of each new partition, in steps; the first of each leads.

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
        if partition and partition % PLACEMENTS_PER_STEP == 0:
            yield
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
    members = [broker for broker in brokers if (broker.rack or "") == rack and broker.fenced == fenced]
    random.shuffle(members)
    return _Ring(_striped(members), random)


def _striped(brokers: list[UsableBroker]) -> list[UsableBroker]:
    """The same brokers, alternating over hosts: neighbours in a ring are on different hosts if possible."""
    by_host: dict[str | int, list[UsableBroker]] = {}
    for broker in brokers:
        by_host.setdefault(broker.broker_id if broker.host is None else broker.host, []).append(broker)
    rounds = zip_longest(*by_host.values())
    return [broker for each in rounds for broker in each if broker is not None]


def _place_one(
    order: list[str], live: dict[str, _Ring], fenced: dict[str, _Ring], replication_factor: int
) -> tuple[int, ...]:
    # Broker -> its host, in the order of the replicas.
    used: dict[int, str | None] = {}
    # A rack gives a live broker if one is left, else a fenced one: racks matter more, because fencing is temporary.
    while len(used) < replication_factor:
        crowded = {
            rack: bool(used) and not live[rack].has_free_host(used) and not fenced[rack].has_free_host(used)
            for rack in order
        }
        for rack in sorted(order, key=crowded.__getitem__):
            ring = live[rack]
            broker_id = ring.next_broker(used, lead=not used)
            if broker_id is None and used:
                ring = fenced[rack]
                broker_id = ring.next_broker(used, lead=False)
            if broker_id is not None:
                used[broker_id] = ring.host_of(broker_id)
            if len(used) == replication_factor:
                break
    return tuple(used)
