"""Checks a history of what clients saw: whether the log kept its guarantees.

A history is a list of operations in the order of their completion. Each is `ok` (certain), `info` (unknown: any
timeout or lost connection) or `fail` (certainly did not happen). Values are unique for each partition. The checks
follow the Kafka workload of Jepsen, with additions; every function here is pure: a history in, findings out.

Terms: the *version order* of a partition is offset → values, from all polls and from all sends that must have
committed (ok, or info with a value that an ok poll read); the *index* of a value is the rank of its offset among those
that hold a value, because gaps are markers or compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

Partition = str
Value = int


class Outcome(Enum):
    OK = "ok"
    INFO = "info"
    FAIL = "fail"


@dataclass(slots=True)
class Send:
    """One value to one partition; `offset` None where no acknowledgement named it.

    `copy_of` is the partition and the value that it is a copy of, where it was made by one who copies.
    """

    partition: Partition
    value: Value
    offset: int | None = None
    copy_of: tuple[Partition, Value] | None = None


@dataclass(slots=True)
class Poll:
    """The records of one partition from one fetch: (offset, value) pairs in the order they were delivered."""

    partition: Partition
    records: list[tuple[int, Value]]


@dataclass(slots=True)
class EndOffset:
    """An answer of ListOffsets(latest), exclusive."""

    partition: Partition
    offset: int


@dataclass(slots=True)
class Marks:
    """The marks that one replica reports of a partition; -1 for one that it does not report.

    `source` is the process that answered, from its start to its end: two of them may know different things.
    """

    partition: Partition
    source: str
    leader_epoch: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1


@dataclass(slots=True)
class Identity:
    """The answer of an InitProducerId to a producer with a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Commit:
    """A committed or fetched group offset: the next one to read; -1 where it is not of a member's generation."""

    group: str
    partition: Partition
    offset: int
    fetched: bool = False
    generation: int = -1


@dataclass(slots=True)
class Assigned:
    """The assignment from a SyncGroup to a member, or to a static member's instance; `source` is the broker."""

    group: str
    generation: int
    member: str
    partitions: tuple[Partition, ...]
    source: str = ""


@dataclass(slots=True)
class Heard:
    """A heartbeat of a member that was answered with success; `source` is who answered, and whether it had loaded."""

    group: str
    generation: int
    source: str = ""


Step = Send | Poll | EndOffset | Marks | Identity | Commit | Assigned | Heard


@dataclass(slots=True)
class Operation:
    """One operation of one client process.

    Attributes:
        process: the client; its operations are sequential.
        steps: sends and polls in the order they were made; more than one only inside a transaction.
        invoked, completed: positions in the global order of events, for real-time rules.
        transactional: all steps commit or abort together.
        assigns: the process changed what it reads before this operation, so polls may jump.
        rebalanced: partitions that were taken or given during the operation.
        ending: of a transaction, when its end was first asked for; 0 where that is not known.
    """

    process: int
    outcome: Outcome
    steps: list[Step]
    invoked: int = 0
    completed: int = 0
    transactional: bool = False
    assigns: bool = False
    rebalanced: frozenset[Partition] = frozenset()
    ending: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """The guarantees that the clients of a history have."""

    idempotent: bool = True
    read_committed: bool = True
    assigned: bool = True
    drained: bool = True
    # Partitions of which every committed value must have been copied once when all is over.
    copied: tuple[Partition, ...] = ()
    # No other broker can still take itself for the coordinator, and answer from what it knew when it was.
    one_coordinator: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    anomaly: str
    partition: Partition
    detail: str


@dataclass(slots=True)
class VersionOrder:
    """The offsets and indexes of the values of one partition."""

    values_at: dict[int, set[Value]] = field(default_factory=dict)
    offsets_of: dict[Value, set[int]] = field(default_factory=dict)
    index_of_offset: dict[int, int] = field(default_factory=dict)

    def add(self, offset: int, value: Value) -> None:
        self.values_at.setdefault(offset, set()).add(value)
        self.offsets_of.setdefault(value, set()).add(offset)

    def close(self) -> None:
        self.index_of_offset = {offset: index for index, offset in enumerate(sorted(self.values_at))}

    def first_index(self, value: Value) -> int | None:
        offsets = self.offsets_of.get(value)
        return self.index_of_offset[min(offsets)] if offsets else None

    def last_index(self, value: Value) -> int | None:
        offsets = self.offsets_of.get(value)
        return self.index_of_offset[max(offsets)] if offsets else None


class Analysis:
    """The indexes of a history that several checks need, gathered once."""

    def __init__(self, history: list[Operation]) -> None:  # noqa: C901 - two passes over one history
        self.history = history
        self.ok_read: dict[Partition, set[Value]] = {}
        self.orders: dict[Partition, VersionOrder] = {}
        self.writer_of: dict[tuple[Partition, Value], Operation] = {}
        for operation in history:
            for step in operation.steps:
                if isinstance(step, Poll):
                    order = self.orders.setdefault(step.partition, VersionOrder())
                    read = self.ok_read.setdefault(step.partition, set())
                    for offset, value in step.records:
                        order.add(offset, value)
                        if operation.outcome is Outcome.OK:
                            read.add(value)
                elif isinstance(step, Send):
                    self.writer_of[step.partition, step.value] = operation
        for operation in history:
            if not self.must_have_committed(operation):
                continue
            for step in operation.steps:
                if isinstance(step, Send) and step.offset is not None:
                    self.orders.setdefault(step.partition, VersionOrder()).add(step.offset, step.value)
        for order in self.orders.values():
            order.close()

    def must_have_committed(self, operation: Operation) -> bool:
        """An ok operation, or an unknown one of which a reader has seen a value."""
        if operation.outcome is Outcome.OK:
            return True
        return operation.outcome is Outcome.INFO and any(
            isinstance(step, Send) and step.value in self.ok_read.get(step.partition, ()) for step in operation.steps
        )

    def sends(self) -> Iterator[tuple[Operation, Send]]:
        for operation in self.history:
            for step in operation.steps:
                if isinstance(step, Send):
                    yield operation, step

    def ok_polls(self) -> Iterator[tuple[Operation, Poll]]:
        for operation in self.history:
            if operation.outcome is Outcome.OK:
                for step in operation.steps:
                    if isinstance(step, Poll):
                        yield operation, step


def find_anomalies(history: list[Operation], rules: Rules | None = None) -> list[Finding]:
    """Every broken promise in a history, in a stable order; an empty list means that none was found."""
    from tests.sim.anomalies import checks_for

    analysis = Analysis(history)
    return [finding for check in checks_for(rules or Rules()) for finding in check(analysis)]


def first(findings: Iterable[Finding], limit: int = 10) -> str:
    """A few findings as lines, for a failure's message."""
    lines = [f"{finding.anomaly} in {finding.partition}: {finding.detail}" for finding in findings]
    more = f"\n… and {len(lines) - limit} more" if len(lines) > limit else ""
    return "\n".join(lines[:limit]) + more
