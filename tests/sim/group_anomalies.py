"""The anomalies of groups: one function for each, which takes the analysis of a history and yields findings.

SyncGroup shows the order of generations: an assignment is durable once it was answered, so no request that began later
may succeed in an earlier generation.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from tests.sim.history import Analysis, Assigned, Commit, Finding, Heard, Operation, Outcome, Partition, Poll


def two_owners(analysis: Analysis) -> Iterator[Finding]:
    """A partition that belongs to two members in one generation."""
    owners: dict[tuple[str, int, Partition], str] = {}
    for _, step in _assignments(analysis):
        for partition in step.partitions:
            owner = owners.setdefault((step.group, step.generation, partition), step.member)
            if owner != step.member:
                detail = f"group {step.group}, generation {step.generation}: {owner} and {step.member}"
                yield Finding("two-owners", partition, detail)


def stale_generation(analysis: Analysis) -> Iterator[Finding]:
    """A SyncGroup, heartbeat or commit that succeeded though a later generation had been assigned before it began.

    A coordinator that still loads answers every heartbeat with success, as Kafka's does: it knows no generation yet. So
    a heartbeat counts only where the process that answered it has assigned the later generation itself, and had loaded
    all: it may be the coordinator twice, in two leader epochs.
    """
    events: list[tuple[int, int, str, int, str | None, Operation | None]] = []
    for operation in analysis.history:
        if operation.outcome is not Outcome.OK:
            continue
        for step in operation.steps:
            if isinstance(step, Assigned):
                events.append((operation.completed, 0, step.group, step.generation, step.source, None))
            if isinstance(step, Assigned | Heard) or (isinstance(step, Commit) and not step.fetched):
                source = step.source if isinstance(step, Heard) else None
                events.append((operation.invoked, 1, step.group, step.generation, source, operation))
    events.sort(key=lambda event: event[:2])
    newest: dict[str, int] = {}
    assigned_by: dict[str, str | None] = {}
    for _, _, group, generation, source, asked in events:
        if asked is None:
            if generation >= newest.get(group, -1):
                newest[group], assigned_by[group] = generation, source
        elif 0 <= generation < newest.get(group, -1) and source in (None, assigned_by[group]):
            detail = f"process {asked.process} in generation {generation}, {newest[group]} was assigned before"
            yield Finding("stale-generation", "", f"group {group}: {detail}")


def committed_unread(analysis: Analysis) -> Iterator[Finding]:
    """A member committed past a value that no member of its group had been given."""
    group_of = {operation.process: step.group for operation, step in _assignments(analysis)}
    offsets = {partition: sorted(order.values_at) for partition, order in analysis.orders.items()}
    given: dict[tuple[str, Partition], set[int]] = {}
    fronts: dict[tuple[str, Partition], int] = {}
    for operation in analysis.history:
        group = group_of.get(operation.process)
        if group is None:
            continue
        for step in operation.steps:
            if isinstance(step, Commit):
                yield from _unread(step, offsets.get(step.partition, []), given, fronts)
            elif isinstance(step, Poll) and operation.outcome is Outcome.OK:
                given.setdefault((group, step.partition), set()).update(offset for offset, _ in step.records)


def _unread(
    commit: Commit,
    offsets: list[int],
    given: dict[tuple[str, Partition], set[int]],
    fronts: dict[tuple[str, Partition], int],
) -> Iterator[Finding]:
    """Move the front of what the group was given without a gap; findings where the commit lies beyond it."""
    key = (commit.group, commit.partition)
    seen = given.get(key, set())
    front = fronts.get(key, 0)
    end = bisect_left(offsets, commit.offset)
    while front < end and offsets[front] in seen:
        front += 1
    fronts[key] = front
    if front < end:
        verb = "read back" if commit.fetched else "committed"
        detail = f"group {commit.group} {verb} {commit.offset}, and was never given offset {offsets[front]}"
        yield Finding("committed-unread", commit.partition, detail)


def committed_offset_goes_back(analysis: Analysis) -> Iterator[Finding]:  # noqa: C901 - two passes over one history
    """A group reads back an offset below one that was acknowledged before the read began.

    A commit that overlaps the read, or another commit, may fall on either side of it; one whose fate is unknown may
    take effect until a later generation is assigned, which fences it.
    """
    fences = _fences(analysis)
    commits: dict[tuple[str, Partition], Commits] = {}
    for operation in analysis.history:
        if operation.outcome is Outcome.FAIL:
            continue
        for step in operation.steps:
            if isinstance(step, Commit) and not step.fetched:
                commits.setdefault((step.group, step.partition), Commits()).add(operation, step, fences)
    for each in commits.values():
        each.close()
    for operation in analysis.history:
        if operation.outcome is not Outcome.OK:
            continue
        for step in operation.steps:
            if isinstance(step, Commit) and step.fetched and (step.group, step.partition) in commits:
                detail = commits[step.group, step.partition].wrong(operation, step)
                if detail:
                    yield Finding("committed-offset-regression", step.partition, f"group {step.group} {detail}")


class Commits:
    """The commits of one group for one partition, by when they may have taken effect."""

    def __init__(self) -> None:
        # (completed, invoked) of the acknowledged commits, and for each the latest beginning of all before it.
        self._settled: list[tuple[int, int]] = []
        self._newest_starts: list[int] = []
        # Offset -> the last moment at which a commit of it may have taken effect.
        self._effective: dict[int, float] = {}

    def add(self, operation: Operation, commit: Commit, fences: dict[str, list[tuple[int, int]]]) -> None:
        until: float = operation.completed
        if operation.outcome is Outcome.OK:
            self._settled.append((operation.completed, operation.invoked))
        else:
            until = _fence(fences.get(commit.group, []), commit.generation)
        self._effective[commit.offset] = max(self._effective.get(commit.offset, 0), until)

    def close(self) -> None:
        self._settled.sort()
        self._newest_starts = list(accumulate((invoked for _, invoked in self._settled), max))

    def wrong(self, operation: Operation, fetched: Commit) -> str:
        """The error of an offset that OffsetFetch returned; "" if it is possible."""
        settled = bisect_left(self._settled, (operation.invoked, 0))
        if not settled or self._effective.get(fetched.offset, -1) >= self._newest_starts[settled - 1]:
            return ""
        start = self._newest_starts[settled - 1]
        possible = sorted(offset for offset, until in self._effective.items() if until >= start)
        return f"read {fetched.offset}, acknowledged were {possible[:5]}"


def _fences(analysis: Analysis) -> dict[str, list[tuple[int, int]]]:
    """For each group its generations, highest first, with the first moment at which it or a later one was assigned."""
    firsts: dict[str, dict[int, int]] = {}
    for operation, step in _assignments(analysis):
        first = firsts.setdefault(step.group, {})
        first[step.generation] = min(first.get(step.generation, operation.completed), operation.completed)
    fences = {}
    for group, first in firsts.items():
        generations = sorted(first, reverse=True)
        fences[group] = list(zip(generations, accumulate((first[each] for each in generations), min), strict=True))
    return fences


def _fence(generations: list[tuple[int, int]], generation: int) -> float:
    """The time at which the first generation after this one was assigned; infinite for a commit without generation."""
    later = [moment for number, moment in generations if number > generation >= 0]
    return later[-1] if later else math.inf


def _assignments(analysis: Analysis) -> Iterator[tuple[Operation, Assigned]]:
    for operation in analysis.history:
        if operation.outcome is Outcome.OK:
            for step in operation.steps:
                if isinstance(step, Assigned):
                    yield operation, step
