"""The server-side assignors `uniform` and `range`. Pure functions, independent of the order of the members.

Both get each member's subscription and its previous target, and return its new target. `uniform` spreads partitions
evenly and moves as few as possible; among members that may take one it prefers those in a rack of the partition's
replicas. `range` gives each member a run of neighbouring partitions of every topic, so that equal partitions of
equal-sized topics go to one member. Source: KIP-848, KIP-881.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from odradek.coordinator.group.consumer.state import NO_PARTITIONS, Partitions, in_order
from odradek.coordinator.group.consumer.topics import TopicFacts

Partition = tuple[UUID, int]
Topics = Mapping[UUID, TopicFacts]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One member as input of an assignor. `topic_ids` are existing topics; `previous` is its last target."""

    topic_ids: frozenset[UUID]
    previous: Partitions = NO_PARTITIONS
    instance_id: str | None = None
    rack_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Topics], dict[str, Partitions]]


def range_assignment(members: Mapping[str, Subscriber], topics: Topics) -> dict[str, Partitions]:
    """Split each topic into runs, in the order of instance ids and member ids; the first runs are longer by one."""
    given: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    ranked = sorted(members, key=lambda each: (members[each].instance_id or each, each))
    for topic_id in sorted(topics, key=lambda each: each.int):
        subscribers = [each for each in ranked if topic_id in members[each].topic_ids]
        if not subscribers:
            continue
        share, longer = divmod(topics[topic_id].partition_count, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + share + (index < longer)
            given[member_id].update((topic_id, partition_id) for partition_id in range(start, end))
            start = end
    return {member_id: frozenset(each) for member_id, each in given.items()}


def uniform_assignment(members: Mapping[str, Subscriber], topics: Topics) -> dict[str, Partitions]:
    """Assign evenly and stickily; see the module docstring."""
    if not members:
        return {}
    return _Uniform(members, topics).assignment()


class _Uniform:
    """One computation: keep previous partitions, assign the rest, then balance."""

    def __init__(self, members: Mapping[str, Subscriber], topics: Topics) -> None:
        self._members = {member_id: members[member_id] for member_id in sorted(members)}
        self._topics = topics
        self._given: dict[str, dict[Partition, None]] = {member_id: {} for member_id in self._members}
        self._taken: set[Partition] = set()
        subscriptions = iter(self._members.values())
        first = next(subscriptions).topic_ids
        self._lightest: dict[UUID, _Lightest] = {}
        self._homogeneous = all(each.topic_ids == first for each in subscriptions)

    def assignment(self) -> dict[str, Partitions]:
        self._retain_previous()
        if self._homogeneous:
            self._shed()
        self._fill()
        if not self._homogeneous:
            self._even_out()
        return {member_id: frozenset(given) for member_id, given in self._given.items()}

    def _retain_previous(self) -> None:
        """Assign each member its previous partitions of subscribed topics, unless an earlier member claimed them."""
        for member_id, member in self._members.items():
            for partition in in_order(member.previous):
                topic = self._topics.get(partition[0])
                exists = topic is not None and partition[1] < topic.partition_count
                if exists and partition[0] in member.topic_ids and partition not in self._taken:
                    self._taken.add(partition)
                    self._given[member_id][partition] = None

    def _limits(self) -> dict[str, int]:
        """The limit of each member if all have one subscription: members that keep most get the larger shares."""
        subscribed = next(iter(self._members.values())).topic_ids
        total = sum(
            self._topics[topic_id].partition_count for topic_id in sorted(subscribed, key=lambda each: each.int)
        )
        share, longer = divmod(total, len(self._members))
        ranked = sorted(self._members, key=lambda each: (-len(self._given[each]), each))
        return {member_id: share + (index < longer) for index, member_id in enumerate(ranked)}

    def _shed(self) -> None:
        """Remove partitions from members above their limit, first those not in their rack."""
        for member_id, limit in self._limits().items():
            given = self._given[member_id]
            surplus = len(given) - limit
            if surplus <= 0:
                continue
            rack = self._members[member_id].rack_id
            leaving = sorted(given, key=lambda each: (self._in_rack(each, rack), -each[0].int, -each[1]))[:surplus]
            for partition in leaving:
                del given[partition]
                self._taken.discard(partition)

    def _fill(self) -> None:
        """Assign each free partition to a member with the fewest; first, up to an even share, in its rack."""
        subscribers: dict[UUID, list[str]] = {}
        for member_id, member in self._members.items():
            for topic_id in sorted(member.topic_ids, key=lambda each: each.int):
                subscribers.setdefault(topic_id, []).append(member_id)
        # Topics with few subscribers come first: their partitions have the fewest candidates.
        ranked = sorted(subscribers, key=lambda each: (len(subscribers[each]), each.int))
        if self._homogeneous:
            total = sum(self._topics[topic_id].partition_count for topic_id in ranked)
            self._fill_racks(ranked, total // len(self._members))
        # Topics with the same subscribers share one `_Lightest`.
        by_subscribers: dict[tuple[str, ...], _Lightest] = {}
        for topic_id in ranked:
            key = tuple(subscribers[topic_id])
            lightest = by_subscribers.get(key)
            if lightest is None:
                lightest = by_subscribers[key] = _Lightest(key, self._given)
            self._lightest[topic_id] = lightest
            for partition in self._free(topic_id):
                self._assign_to(lightest.first(), partition)

    def _fill_racks(self, topic_ids: Iterable[UUID], share: int) -> None:
        by_rack: dict[str, list[str]] = {}
        for member_id, member in self._members.items():
            if member.rack_id is not None:
                by_rack.setdefault(member.rack_id, []).append(member_id)
        near = {rack: _Lightest(member_ids, self._given) for rack, member_ids in by_rack.items()}
        for topic_id in topic_ids:
            racks = self._topics[topic_id].racks
            for partition in self._free(topic_id):
                at = racks[partition[1]] if partition[1] < len(racks) else frozenset[str]()
                candidates = [near[rack].first() for rack in sorted(at) if rack in near]
                best = min(candidates, key=lambda each: (len(self._given[each]), each), default=None)
                if best is not None and len(self._given[best]) < share:
                    self._assign_to(best, partition)

    def _free(self, topic_id: UUID) -> list[Partition]:
        every = ((topic_id, partition_id) for partition_id in range(self._topics[topic_id].partition_count))
        return [partition for partition in every if partition not in self._taken]

    def _assign_to(self, member_id: str, partition: Partition) -> None:
        self._taken.add(partition)
        self._given[member_id][partition] = None

    def _even_out(self) -> None:
        """Move partitions from members with many to subscribers with at least two fewer, until none can move."""
        readers: dict[str, dict[_Lightest, None]] = {member_id: {} for member_id in self._members}
        for member_id, member in self._members.items():
            for topic_id in sorted(member.topic_ids, key=lambda each: each.int):
                readers[member_id][self._lightest[topic_id]] = None
        moved = True
        while moved:
            moved = False
            for donor in sorted(self._members, key=lambda each: (-len(self._given[each]), each)):
                fell = False
                for partition in list(self._given[donor]):
                    recipient = self._recipient(partition, len(self._given[donor]))
                    if recipient is not None:
                        del self._given[donor][partition]
                        self._given[recipient][partition] = None
                        moved = fell = True
                # While a donor gives it takes none, so only later lookups need its new count.
                for lightest in readers[donor] if fell else ():
                    lightest.decreased(donor)

    def _recipient(self, partition: Partition, donor_count: int) -> str | None:
        best = self._lightest[partition[0]].first()
        return best if len(self._given[best]) + 2 <= donor_count else None

    def _in_rack(self, partition: Partition, rack_id: str | None) -> bool:
        racks = self._topics[partition[0]].racks
        return rack_id is not None and partition[1] < len(racks) and rack_id in racks[partition[1]]


class _Lightest:
    """Finds the member with the fewest partitions while they move, without a scan of all members.

    The heap has an entry for each member, never above its real count; `first` corrects the entries that it pops.
    """

    def __init__(self, member_ids: Iterable[str], given: Mapping[str, Mapping[Partition, None]]) -> None:
        self._given = given
        self._heap = [(len(given[member_id]), member_id) for member_id in member_ids]
        heapq.heapify(self._heap)

    def first(self) -> str:
        """The member with the fewest partitions, of several the first by name. There is at least one."""
        while True:
            count, member_id = self._heap[0]
            present = len(self._given[member_id])
            if present == count:
                return member_id
            heapq.heapreplace(self._heap, (present, member_id))

    def decreased(self, member_id: str) -> None:
        """A member's count has decreased."""
        heapq.heappush(self._heap, (len(self._given[member_id]), member_id))


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform_assignment, "range": range_assignment}
