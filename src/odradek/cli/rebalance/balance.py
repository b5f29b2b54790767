"""Plans moves of replicas and leaders that even out the load of brokers, with few bytes copied.

Pure: the input is the present assignment, the output a new one. Four things are counted for each broker: replicas,
leaders, bytes on disk, and traffic (writes to its replicas, and fetches of followers from its leaders). First
every partition gets on as many racks as it has copies. Then, as long as a broker has too much or too little of
something, that change is made which gains most for each byte that it copies. A change that does not bring the whole
closer together, or makes something worse than it may be, is not made; so a cluster that is even enough stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from odradek.cli.failure_domains import FailureDomains
from odradek.cli.partition_plan import Assignment, Replicas
from odradek.common.topic_names import TopicPartition

# How far from the mean a broker may be.
TOLERANCE = 0.1
# Beside what is copied: what a change of leaders, or of a replica, costs in itself.
LEADER_COST, REPLICA_COST = 1.0, 1_000_000.0
# Of one step: what is less than that is noise of the arithmetic.
LEAST_GAIN = 1e-9


class Load(IntEnum):
    """The kinds of load."""

    REPLICAS = 0
    LEADERS = 1
    DISK = 2
    TRAFFIC = 3


Vector = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a partition: bytes of one replica, and bytes written to it per second."""

    disk: float = 0.0
    traffic: float = 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """One change: `new` replaces `old`, or (if `new` has a replica already) becomes the leader in its place."""

    key: TopicPartition
    old: int
    new: int
    cost: float
    is_leader: bool


@dataclass
class Balance:
    """A plan that is being computed.

    Attributes:
        racks, hosts: of all brokers; see `FailureDomains`.
        resting: brokers that are away, or drain: they keep what they have, and get nothing.
        assignment: all partitions; changed as the plan is made.
        limit_bytes: copy no more than so much; racks and machines are spread over whatever it takes.
    """

    racks: Mapping[int, str | None]
    assignment: dict[TopicPartition, list[int]]
    weights: Mapping[TopicPartition, Weights]
    resting: Collection[int] = ()
    tolerance: float = TOLERANCE
    limit_bytes: float = float("inf")
    copied_bytes: float = 0.0
    loads: dict[int, list[float]] = field(default_factory=dict)
    hosts: Mapping[int, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._domains = FailureDomains(self.racks, self.hosts)
        self.loads = {broker: [0.0] * len(Load) for broker in sorted(self.racks) if broker not in self.resting}
        for key in self.assignment:
            self._count(key, 1)
        self.means = [self._sum(load) / max(1, len(self.loads)) for load in Load]
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in self.loads}
        for key, replicas in self.assignment.items():
            for broker in replicas:
                if broker in self._held:
                    self._held[broker].add(key)

    def run(self) -> None:
        """Compute the whole plan."""
        self._spread_domains()
        while step := self._best_step():
            self._apply(step)

    # -- what is counted ----------------------------------------------------------------------------------------------

    def _vector(self, key: TopicPartition, *, leads: bool) -> Vector:
        """The load that one replica adds to its broker."""
        found = self.weights.get(key, Weights())
        sent = found.traffic * (len(self.assignment[key]) - 1) if leads else 0.0
        return (1.0, 1.0 if leads else 0.0, found.disk, found.traffic + sent)

    def _count(self, key: TopicPartition, sign: int) -> None:
        for place, broker in enumerate(self.assignment[key]):
            if broker in self.loads:
                self._add(broker, self._vector(key, leads=place == 0), sign)

    def _add(self, broker: int, vector: Vector, sign: int) -> None:
        load = self.loads[broker]
        for index, amount in enumerate(vector):
            load[index] += sign * amount

    def _sum(self, load: Load) -> float:
        return sum(loads[load] for loads in self.loads.values())

    @property
    def unevenness(self) -> float:
        """The sum of the squares of every broker's relative distance from the mean."""
        return sum(self._square(load, loads[load]) for loads in self.loads.values() for load in Load)

    def spread(self, load: Load) -> float:
        """The relative distance from the mean of the broker that is farthest from it."""
        if not self.means[load]:
            return 0.0
        return max(abs(loads[load] / self.means[load] - 1) for loads in self.loads.values())

    def _square(self, load: int, amount: float) -> float:
        mean = self.means[load]
        return (amount / mean - 1) ** 2 if mean else 0.0

    def _allowed(self, load: int) -> float:
        """The allowed distance of a broker from the mean: at least one, since replicas are whole numbers."""
        mean = self.means[load]
        if load in (Load.REPLICAS, Load.LEADERS) and mean:
            return max(self.tolerance * mean, 1.0)
        return self.tolerance * mean

    # -- racks and machines --------------------------------------------------------------------------------------------

    def _spread_domains(self) -> None:
        for key in sorted(self.assignment):
            while step := self._domain_step(key):
                self._apply(step)

    def _domain_step(self, key: TopicPartition) -> _Step | None:
        """Move a replica that shares its rack or its machine to one without a replica; the leader last."""
        replicas = self.assignment[key]
        free = sorted(
            (broker for broker in self.loads if broker not in replicas),
            key=lambda broker: (self._fullness(broker), broker),
        )
        for doubled, better in self._domains.improvements(replicas, free):
            movable = [broker for broker in doubled if broker in self.loads]
            for old in sorted(
                movable,
                key=lambda broker: (replicas.index(broker) > 0, self._fullness(broker), broker),
                reverse=True,
            ):
                new = next((broker for broker in better if self._domains.keeps(replicas, old, broker)), None)
                if new is not None:
                    return self._replica_step(key, old, new)
        return None

    def _fullness(self, broker: int) -> float:
        return sum(self.loads[broker][load] / self.means[load] for load in Load if self.means[load])

    # -- steps --------------------------------------------------------------------------------------------------------

    def _replica_step(self, key: TopicPartition, old: int, new: int) -> _Step:
        return _Step(key, old, new, REPLICA_COST + self.weights.get(key, Weights()).disk, is_leader=False)

    def _best_step(self) -> _Step | None:
        """The step with the best ratio of gain to cost, for the most uneven load that a step can improve."""
        for load, broker in self._worst_first():
            for old, new in self._pairs(load, broker):
                best, gained = None, 0.0
                for step in self._steps_between(old, new):
                    gain = self._gain(step)
                    if gain > LEAST_GAIN and gain / step.cost > gained and self._may(step):
                        best, gained = step, gain / step.cost
                if best is not None:
                    return best
        return None

    def _worst_first(self) -> list[tuple[Load, int]]:
        """The loads out of bounds with their brokers, most uneven first."""
        found = []
        for broker, loads in self.loads.items():
            for load in Load:
                distance = abs(loads[load] - self.means[load])
                if distance > self._allowed(load) + LEAST_GAIN * self.means[load]:
                    found.append((-distance / self.means[load], broker, load))
        return [(load, broker) for _, broker, load in sorted(found)]

    def _pairs(self, load: Load, broker: int) -> list[tuple[int, int]]:
        """The pairs of brokers between which a move brings this broker closer to the mean; the farthest first."""
        amounts = {other: loads[load] for other, loads in self.loads.items()}
        others = sorted((other for other in amounts if other != broker), key=lambda other: (amounts[other], other))
        if amounts[broker] > self.means[load]:
            return [(broker, other) for other in others if amounts[other] < amounts[broker]]
        return [(other, broker) for other in reversed(others) if amounts[other] > amounts[broker]]

    def _steps_between(self, old: int, new: int) -> Iterator[_Step]:
        """All moves of leaders and replicas from one broker to the other."""
        for key in sorted(self._held[old]):
            replicas = self.assignment[key]
            if new in replicas:
                if replicas[0] == old:
                    yield _Step(key, old, new, LEADER_COST, is_leader=True)
            elif self._domains.keeps(replicas, old, new):
                yield self._replica_step(key, old, new)

    def _changes(self, step: _Step) -> Iterator[tuple[int, int, float]]:
        """The changes of a step, as (broker, load, its amount after the step)."""
        leads = self.assignment[step.key][0] == step.old
        given = self._vector(step.key, leads=leads)
        if step.is_leader:
            follower = self._vector(step.key, leads=False)
            given = (0.0, 1.0, 0.0, given[Load.TRAFFIC] - follower[Load.TRAFFIC])
        for load, amount in enumerate(given):
            if amount:
                yield step.old, load, self.loads[step.old][load] - amount
                yield step.new, load, self.loads[step.new][load] + amount

    def _gain(self, step: _Step) -> float:
        return sum(
            self._square(load, self.loads[broker][load]) - self._square(load, after)
            for broker, load, after in self._changes(step)
        )

    def _may(self, step: _Step) -> bool:
        """Whether a step is within the limit of bytes, and leaves each load as near to its mean as allowed.

        A load that was farther from its mean before may stay as far.
        """
        if not step.is_leader and self.copied_bytes + self.weights.get(step.key, Weights()).disk > self.limit_bytes:
            return False
        by_load: dict[int, tuple[float, float]] = {}
        for broker, load, after in self._changes(step):
            before, then = by_load.get(load, (0.0, 0.0))
            now = abs(self.loads[broker][load] - self.means[load])
            by_load[load] = max(before, now), max(then, abs(after - self.means[load]))
        return all(then <= max(before, self._allowed(load)) for load, (before, then) in by_load.items())

    def _apply(self, step: _Step) -> None:
        replicas = self.assignment[step.key]
        self._count(step.key, -1)
        if step.is_leader:
            place = replicas.index(step.new)
            replicas[0], replicas[place] = step.new, step.old
        else:
            replicas[replicas.index(step.old)] = step.new
            self._held[step.old].discard(step.key)
            self._held[step.new].add(step.key)
            self.copied_bytes += self.weights.get(step.key, Weights()).disk
        self._count(step.key, 1)


def rebalance(
    racks: Mapping[int, str | None],
    assignment: Assignment,
    weights: Mapping[TopicPartition, Weights],
    resting: Collection[int] = (),
    *,
    tolerance: float = TOLERANCE,
    limit_bytes: float = float("inf"),
    hosts: Mapping[int, str | None] | None = None,
) -> tuple[dict[TopicPartition, Replicas], Balance, Balance]:
    """The changes, and the loads of brokers before and after."""

    before, after = (
        Balance(
            racks,
            {key: list(replicas) for key, replicas in assignment.items()},
            weights,
            resting,
            tolerance,
            limit_bytes,
            hosts=hosts or {},
        )
        for _ in range(2)
    )
    after.run()
    changes = {
        key: tuple(replicas) for key, replicas in after.assignment.items() if tuple(replicas) != tuple(assignment[key])
    }
    return changes, before, after
