"""Plans an assignment that spreads load over brokers, racks and machines with few moves.

Pure: assignments in, assignments out. In this order: replicas leave brokers that shall hold none; a partition is on as
many racks, and then on as many machines, as it has copies; brokers hold as much as each other; every broker leads as
many partitions as another. A move is made only where it brings two brokers closer together, so a cluster that is spread
evenly stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.cli.failure_domains import FailureDomains
from odradek.common.topic_names import TopicPartition

Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]


class PlanError(ValueError):
    """No valid plan exists, or a file is no plan."""


@dataclass
class Planner:
    """The computation of one plan.

    Attributes:
        racks: rack of each broker that may hold replicas; None where it has none.
        hosts: machine of each broker, where it is known.
        weights: load of a partition, in any unit; 1 where it is not named.
        resting: brokers, of those in `racks`, that keep what they hold and get nothing: they are away, or will be.
    """

    racks: Mapping[int, str | None]
    assignment: dict[TopicPartition, list[int]]
    weights: Mapping[TopicPartition, int] = field(default_factory=dict)
    resting: Collection[int] = ()
    hosts: Mapping[int, str | None] = field(default_factory=dict)

    def run(self) -> dict[TopicPartition, Replicas]:
        """The new assignment.

        Raises:
            PlanError: a partition has more replicas than there are brokers to hold them.
        """
        for key, replicas in self.assignment.items():
            if len(replicas) > len(self.racks):
                raise PlanError(
                    f"{key[0]}-{key[1]} has {len(replicas)} replicas, and only {len(self.racks)} brokers may hold them"
                )
        self._keys = sorted(self.assignment)
        self._domains = FailureDomains(self.racks, self.hosts)
        self._load = dict.fromkeys(self.racks, 0)
        for key, replicas in self.assignment.items():
            for broker in replicas:
                if broker in self._load:
                    self._load[broker] += self._weight(key)
        self._replace_others()
        self._spread_domains()
        self._spread_load()
        self._spread_leaders()
        return {key: tuple(replicas) for key, replicas in self.assignment.items()}

    def _weight(self, key: TopicPartition) -> int:
        return max(1, self.weights.get(key, 1))

    def _replace(self, key: TopicPartition, old: int, new: int) -> None:
        replicas = self.assignment[key]
        replicas[replicas.index(old)] = new
        if old in self._load:
            self._load[old] -= self._weight(key)
        self._load[new] += self._weight(key)

    def _candidates(self, replicas: Collection[int], without: int) -> list[int]:
        """The brokers for a replica, the best first: in an unused rack, on an unused machine, with the least load."""
        used = self._domains.used(broker for broker in replicas if broker != without and broker in self.racks)
        free = [broker for broker in self.racks if broker not in replicas and broker not in self.resting]
        return sorted(free, key=lambda broker: (self._domains.crowding(broker, used), self._load[broker], broker))

    def _replace_others(self) -> None:
        for key in self._keys:
            for broker in [each for each in self.assignment[key] if each not in self.racks]:
                candidates = self._candidates(self.assignment[key], broker)
                if not candidates:
                    raise PlanError(f"no broker is left that {key[0]}-{key[1]} could go to from broker {broker}")
                self._replace(key, broker, candidates[0])

    def _spread_domains(self) -> None:
        for key in self._keys:
            while step := self._domain_step(key):
                self._replace(key, *step)

    def _domain_step(self, key: TopicPartition) -> tuple[int, int] | None:
        """(old, new): a replica that shares its rack or machine moves to an unused one."""
        replicas = self.assignment[key]
        for doubled, free in self._domains.improvements(replicas, self._candidates(replicas, -1)):
            # The first replica stays where it can: clients are there.
            for old in sorted(doubled, key=lambda broker: (replicas.index(broker) == 0, -self._load[broker])):
                new = next((broker for broker in free if self._domains.keeps(replicas, old, broker)), None)
                if new is not None:
                    return old, new
        return None

    def _spread_load(self) -> None:
        while True:
            awake = [broker for broker in self.racks if broker not in self.resting]
            by_load = sorted(awake, key=lambda broker: (self._load[broker], broker))
            if not any(self._shift(high, low) for high in reversed(by_load) for low in by_load):
                return

    def _shift(self, high: int, low: int) -> bool:
        """Move the replica that best balances two brokers; returns whether there is one."""
        gap = self._load[high] - self._load[low]
        best: TopicPartition | None = None
        for key in self._keys:
            replicas, weight = self.assignment[key], self._weight(key)
            if high not in replicas or low in replicas or weight >= gap:
                continue
            if not self._domains.keeps(replicas, high, low):
                continue
            if best is None or abs(gap - 2 * weight) < abs(gap - 2 * self._weight(best)):
                best = key
                if not self.weights:
                    break  # one is as good as another
        if best is None:
            return False
        self._replace(best, high, low)
        return True

    def _spread_leaders(self) -> None:
        """Exchange first replicas along chains of brokers, from one with many leaders to one with few."""
        leads = dict.fromkeys(self.racks, 0)
        for replicas in self.assignment.values():
            leads[replicas[0]] += 1
        while True:
            for start in sorted(leads, key=lambda broker: (-leads[broker], broker)):
                chain = self._chain(start, leads)
                if chain:
                    break
            else:
                return
            for key, heir in chain:
                replicas = self.assignment[key]
                leads[replicas[0]] -= 1
                leads[heir] += 1
                replicas.remove(heir)
                replicas.insert(0, heir)

    def _chain(self, start: int, leads: Mapping[int, int]) -> list[tuple[TopicPartition, int]]:
        """The shortest chain from a broker to one with at least two fewer leaders; empty if there is none."""
        led: dict[int, list[TopicPartition]] = {}
        for key in self._keys:
            led.setdefault(self.assignment[key][0], []).append(key)
        came_from: dict[int, tuple[TopicPartition, int] | None] = {start: None}
        queue = [start]
        for broker in queue:
            if leads[broker] <= leads[start] - 2:
                chain: list[tuple[TopicPartition, int]] = []
                step = came_from[broker]
                while step is not None:
                    key, giver = step
                    chain.append((key, broker))
                    broker, step = giver, came_from[giver]
                return chain[::-1]
            for key in led.get(broker, ()):
                for heir in self.assignment[key][1:]:
                    if heir not in came_from and heir not in self.resting:
                        came_from[heir] = (key, broker)
                        queue.append(heir)
        return []


def plan(
    racks: Mapping[int, str | None],
    assignment: Assignment,
    weights: Mapping[TopicPartition, int] | None = None,
    resting: Collection[int] = (),
    hosts: Mapping[int, str | None] | None = None,
) -> dict[TopicPartition, Replicas]:
    """The partitions whose replicas, or first replica, change, with their new replicas.

    Args:
        racks: the brokers that may hold replicas, with their racks.
        assignment: all partitions that count; those of brokers that are not named leave them.
        weights, resting, hosts: see `Planner`.
    Raises:
        PlanError: more replicas than brokers.
    """
    planned = Planner(
        racks, {key: list(replicas) for key, replicas in assignment.items()}, weights or {}, resting, hosts or {}
    ).run()
    return {key: replicas for key, replicas in planned.items() if replicas != tuple(assignment[key])}


def to_json(assignment: Assignment) -> dict[str, Any]:
    """Kafka's format of a reassignment, for `kafka-reassign-partitions --reassignment-json-file`."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "replicas": list(replicas),
                "log_dirs": ["any"] * len(replicas),
            }
            for (topic, number), replicas in sorted(assignment.items())
        ],
    }


def from_json(text: str) -> dict[TopicPartition, Replicas]:
    """Parse Kafka's format; a plan may be empty.

    Raises:
        PlanError: it is no such file, names a partition twice, gives one the same replica twice or none, or asks for a
            log directory.
    """
    try:
        found = json.loads(text)
        entries = found["partitions"]
        version = found.get("version", 1)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise PlanError('this is not a reassignment: it must be {"version":1,"partitions":[…]}') from None
    if version != 1:
        raise PlanError(f"version {version} of the format is not known; write version 1")
    assignment: dict[TopicPartition, Replicas] = {}
    if not isinstance(entries, list):
        raise PlanError("its partitions must be a list")
    for entry in entries:
        key, replicas = _entry(entry)
        if key in assignment:
            raise PlanError(f"{key[0]}-{key[1]} is named twice")
        assignment[key] = replicas
    return assignment


def _is_number(value: Any) -> bool:
    """Whether a value may be the number of a partition or a broker; `true` is not."""
    return type(value) is int and value >= 0


def _entry(entry: Any) -> tuple[TopicPartition, Replicas]:
    try:
        topic, number, replicas = entry["topic"], entry["partition"], entry["replicas"]
        dirs = entry.get("log_dirs", [])
    except (TypeError, KeyError, AttributeError):
        raise PlanError(f"an entry needs topic, partition and replicas: {entry}") from None
    numbers = [number, *replicas] if isinstance(replicas, list) else [None]
    if not isinstance(topic, str) or not all(map(_is_number, numbers)):
        raise PlanError(f"an entry needs a topic, and a partition and replicas that are numbers: {entry}")
    if not replicas:
        raise PlanError(f"{topic}-{number} has no replicas in the plan")
    if len(set(replicas)) < len(replicas):
        raise PlanError(f"{topic}-{number} names a broker twice: {replicas}")
    if any(each != "any" for each in dirs):
        raise PlanError(f'{topic}-{number} names log directories; only "any" can be asked for here')
    return (topic, number), tuple(replicas)
