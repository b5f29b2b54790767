"""Failure domains of brokers: racks and machines. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Domain = tuple[str, str | int | None]


@dataclass(frozen=True, slots=True)
class FailureDomains:
    """The racks and machines of brokers.

    Attributes:
        racks: rack of each broker that may hold replicas; None where it has none: those share one.
        hosts: machine of each broker; one that is not named is on a machine of its own.
    """

    racks: Mapping[int, str | None]
    hosts: Mapping[int, str | None] = field(default_factory=dict)

    def of(self, broker: int) -> tuple[Domain, Domain]:
        """The rack and the machine of a broker, in this order."""
        host = self.hosts.get(broker)
        return ("rack", self.racks.get(broker) or ""), ("host", broker if host is None else host)

    def used(self, replicas: Iterable[int]) -> set[Domain]:
        """The domains of some brokers."""
        return {domain for broker in replicas for domain in self.of(broker)}

    def crowding(self, broker: int, used: Collection[Domain]) -> tuple[bool, ...]:
        """Whether the broker's rack, and its machine, are in use already; smaller is better."""
        return tuple(domain in used for domain in self.of(broker))

    def keeps(self, replicas: Collection[int], old: int, new: int) -> bool:
        """Whether replacing one broker by another keeps the number of racks and machines of a partition."""
        before = [set(domains) for domains in zip(*map(self.of, replicas), strict=True)]
        moved = [new if broker == old else broker for broker in replicas]
        after = [set(domains) for domains in zip(*map(self.of, moved), strict=True)]
        return all(len(now) >= len(then) for then, now in zip(before, after, strict=True))

    def improvements(self, replicas: Collection[int], free: Iterable[int]) -> Iterator[tuple[list[int], list[int]]]:
        """(replicas that share a domain, free brokers in unused domains), for racks, then for machines.

        The spread over machines loses no rack.
        """
        free = list(free)
        for level in range(2):
            here = [self.of(broker)[level] for broker in replicas]
            doubled = [broker for broker, domain in zip(replicas, here, strict=True) if here.count(domain) > 1]
            better = [broker for broker in free if self.of(broker)[level] not in here]
            if doubled and better:
                yield doubled, better
