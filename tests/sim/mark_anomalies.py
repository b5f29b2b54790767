"""Rules for the marks and epochs that replicas report: a history's analysis in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.history import Analysis, Commit, EndOffset, Finding, Marks, Operation, Outcome, Partition, Send


def marks_go_back(analysis: Analysis) -> Iterator[Finding]:
    """A replica whose high watermark, last stable offset or leader epoch is lower than in an earlier answer.

    The values that one process of a broker has answered hold as long as it lives, for requests that begin after the
    answer; its successor, and other replicas, may know less. Operations that overlap may be answered in any order.
    """
    events: list[tuple[int, int, Operation, Marks]] = []
    for operation in analysis.history:
        if operation.outcome is not Outcome.OK:
            continue
        for step in operation.steps:
            if isinstance(step, Marks):
                events.append((operation.completed, 1, operation, step))
                events.append((operation.invoked, 0, operation, step))
    events.sort(key=lambda event: event[:2])
    seen: dict[tuple[str, Partition], tuple[int, int, int]] = {}
    before: dict[int, tuple[int, int, int]] = {}
    names = ("epoch-regression", "watermark-regression", "stable-offset-regression")
    for _, ends, operation, step in events:
        key = (step.source, step.partition)
        known = seen.get(key, (-1, -1, -1))
        said = (step.leader_epoch, step.high_watermark, step.last_stable_offset)
        if not ends:
            before[id(step)] = known
            continue
        for name, mark, earlier in zip(names, said, before.pop(id(step)), strict=True):
            if 0 <= mark < earlier:
                detail = f"{step.source} said {earlier}, then {mark} to process {operation.process}"
                yield Finding(name, step.partition, detail)
        seen[key] = tuple(map(max, known, said))  # type: ignore[assignment]  # a tuple of the same length


def stale_end_offset(analysis: Analysis) -> Iterator[Finding]:
    """ListOffsets answered an end below a record that was acknowledged before the question was asked."""
    events: list[tuple[int, int, Operation]] = []
    for operation in analysis.history:
        if operation.outcome is Outcome.OK:
            if any(isinstance(step, Send) for step in operation.steps):
                events.append((operation.completed, 0, operation))
            if any(isinstance(step, EndOffset) for step in operation.steps):
                events.append((operation.invoked, 1, operation))
    events.sort(key=lambda event: event[:2])
    ends: dict[Partition, int] = {}
    for _, kind, operation in events:
        for step in operation.steps:
            if kind == 0 and isinstance(step, Send) and step.offset is not None:
                ends[step.partition] = max(ends.get(step.partition, 0), step.offset + 1)
            elif kind == 1 and isinstance(step, EndOffset) and step.offset < ends.get(step.partition, 0):
                detail = f"answered {step.offset}, {ends[step.partition]} was acknowledged before"
                yield Finding("stale-end-offset", step.partition, detail)


def committed_too_far(analysis: Analysis) -> Iterator[Finding]:
    """A group committed an offset beyond every end that its partition was ever seen to have.

    A reader passes records that were aborted, and no value shows that they were there: a watermark does.
    """
    ends = {partition: max(order.values_at, default=-1) + 1 for partition, order in analysis.orders.items()}
    for operation in analysis.history:
        for step in operation.steps:
            if isinstance(step, EndOffset | Marks):
                end = step.offset if isinstance(step, EndOffset) else step.high_watermark
                ends[step.partition] = max(ends.get(step.partition, 0), end)
    for operation in analysis.history:
        for step in operation.steps:
            if isinstance(step, Commit) and operation.outcome is Outcome.OK:
                end = ends.get(step.partition, 0)
                if step.offset > end:
                    yield Finding("committed-too-far", step.partition, f"group {step.group}: {step.offset} > {end}")
