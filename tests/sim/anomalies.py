"""The anomalies that the judge looks for, one function each: a history's analysis in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.sim.group_anomalies import committed_offset_goes_back, committed_unread, stale_generation, two_owners
from tests.sim.history import (
    Analysis,
    Commit,
    EndOffset,
    Finding,
    Operation,
    Outcome,
    Partition,
    Rules,
    Send,
    Value,
)

Check = Callable[[Analysis], Iterator[Finding]]


def inconsistent_offsets(analysis: Analysis) -> Iterator[Finding]:
    """An offset that holds two values: what was read there before is not there any more."""
    for partition, order in analysis.orders.items():
        for offset, values in order.values_at.items():
            if len(values) > 1:
                yield Finding("inconsistent-offsets", partition, f"offset {offset} holds {sorted(values)}")


def duplicate(analysis: Analysis) -> Iterator[Finding]:
    """A value at two offsets, which idempotence forbids."""
    for partition, order in analysis.orders.items():
        for value, offsets in order.offsets_of.items():
            if len(offsets) > 1:
                yield Finding("duplicate", partition, f"value {value} at offsets {sorted(offsets)}")


def lost_write(analysis: Analysis) -> Iterator[Finding]:
    """A committed value that no reader saw, though readers saw later ones."""
    bounds: dict[Partition, int] = {}
    for partition, values in analysis.ok_read.items():
        order = analysis.orders[partition]
        bounds[partition] = max((order.first_index(value) or 0 for value in values), default=-1)
    for operation, send in analysis.sends():
        if send.partition not in bounds or not analysis.must_have_committed(operation):
            continue
        index = analysis.orders[send.partition].last_index(send.value)
        if index is None or index > bounds[send.partition]:
            continue
        if send.value not in analysis.ok_read[send.partition]:
            yield Finding("lost-write", send.partition, f"value {send.value} at offset {send.offset} was never read")


def unseen(analysis: Analysis) -> Iterator[Finding]:
    """An acknowledged value that nobody read, after all partitions were read to their end."""
    for operation, send in analysis.sends():
        if operation.outcome is Outcome.OK and send.value not in analysis.ok_read.get(send.partition, ()):
            yield Finding("unseen", send.partition, f"value {send.value} was acknowledged at {send.offset}")


def aborted_read(analysis: Analysis) -> Iterator[Finding]:
    """G1a: a reader saw a value whose write certainly failed."""
    for operation, poll in analysis.ok_polls():
        for offset, value in poll.records:
            writer = analysis.writer_of.get((poll.partition, value))
            if writer is not None and writer.outcome is Outcome.FAIL:
                yield Finding("G1a", poll.partition, f"process {operation.process} read failed {value} at {offset}")


def precommitted_read(analysis: Analysis) -> Iterator[Finding]:
    """A transaction read what it wrote itself, before it committed."""
    for operation, poll in analysis.ok_polls():
        if not operation.transactional:
            continue
        for _, value in poll.records:
            if analysis.writer_of.get((poll.partition, value)) is operation:
                yield Finding("precommitted-read", poll.partition, f"process {operation.process} read its own {value}")


def circular_reads(analysis: Analysis) -> Iterator[Finding]:
    """G1c over write-read edges alone: two transactions that each saw the other's writes."""
    edges: dict[int, set[int]] = {}
    operations: dict[int, Operation] = {}
    for operation, poll in analysis.ok_polls():
        if not operation.transactional:
            continue
        for _, value in poll.records:
            writer = analysis.writer_of.get((poll.partition, value))
            if writer is not None and writer is not operation and writer.transactional:
                edges.setdefault(id(writer), set()).add(id(operation))
                operations[id(writer)] = writer
                operations[id(operation)] = operation
    for cycle in cycles(edges):
        names = ", ".join(f"process {operations[node].process}" for node in cycle)
        yield Finding("G1c", "", f"transactions of {names} each read another's writes")


def cycles(edges: dict[int, set[int]]) -> Iterator[list[int]]:
    """The strongly connected components of more than one node (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in edges:
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                on_stack.add(target)
                work.append((target, iter(sorted(edges.get(target, ())))))
            elif target in on_stack:
                low[node] = min(low[node], index[target])


def jumps_between_polls(analysis: Analysis) -> Iterator[Finding]:
    """Successive polls of one process that skip values, or go back, without a new assignment between."""
    last: dict[tuple[int, Partition], int] = {}
    for operation, poll in analysis.ok_polls():
        order = analysis.orders[poll.partition]
        indexes = [order.index_of_offset[offset] for offset, _ in poll.records]
        if not indexes:
            continue
        at = (operation.process, poll.partition)
        if operation.assigns:
            last = {key: index for key, index in last.items() if key[0] != operation.process}
        if at in last:
            step = indexes[0] - last[at]
            if step > 1:
                yield Finding("poll-skip", poll.partition, f"process {operation.process} skipped {step - 1} values")
            elif step < 1:
                yield Finding("nonmonotonic-poll", poll.partition, f"process {operation.process} went back {1 - step}")
        last[at] = indexes[-1]


def jumps_inside_polls(analysis: Analysis) -> Iterator[Finding]:
    """The same inside one operation, which nothing excuses but a rebalance of that partition."""
    for operation, poll in analysis.ok_polls():
        if poll.partition in operation.rebalanced:
            continue
        order = analysis.orders[poll.partition]
        for (before, _), (after, value) in zip(poll.records, poll.records[1:], strict=False):
            step = order.index_of_offset[after] - order.index_of_offset[before]
            if step > 1:
                yield Finding("int-poll-skip", poll.partition, f"{step - 1} values missing before {value} at {after}")
            elif step < 1:
                yield Finding("int-nonmonotonic-poll", poll.partition, f"offset {after} came after {before}")


def sends_out_of_order(analysis: Analysis) -> Iterator[Finding]:
    """A later send of a process that lies before an earlier one."""
    last: dict[tuple[int, Partition], tuple[int, Value, Operation]] = {}
    for operation, send in analysis.sends():
        if operation.outcome is not Outcome.OK:
            continue
        order = analysis.orders.get(send.partition)
        index = order.first_index(send.value) if order else None
        if index is None:
            continue
        at = (operation.process, send.partition)
        if at in last and index <= last[at][0]:
            name = "int-nonmonotonic-send" if last[at][2] is operation else "nonmonotonic-send"
            yield Finding(name, send.partition, f"{send.value} lies before the earlier {last[at][1]}")
        last[at] = (index, send.value, operation)


def torn_transaction(analysis: Analysis) -> Iterator[Finding]:
    """When all is read, a part of a transaction is there and a part is not."""
    for operation in analysis.history:
        if not operation.transactional:
            continue
        sends = [step for step in operation.steps if isinstance(step, Send)]
        seen = [send.value in analysis.ok_read.get(send.partition, ()) for send in sends]
        if any(seen) and not all(seen):
            missing = [send.value for send, was_seen in zip(sends, seen, strict=True) if not was_seen]
            yield Finding("torn-txn", sends[0].partition, f"process {operation.process}: {missing} are missing")


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
    """A group committed an offset beyond every end that its partition was ever seen to have."""
    ends = {partition: max(order.values_at, default=-1) + 1 for partition, order in analysis.orders.items()}
    for operation in analysis.history:
        for step in operation.steps:
            if isinstance(step, EndOffset):
                ends[step.partition] = max(ends.get(step.partition, 0), step.offset)
    for operation in analysis.history:
        for step in operation.steps:
            if isinstance(step, Commit) and operation.outcome is Outcome.OK:
                end = ends.get(step.partition, 0)
                if step.offset > end:
                    yield Finding("committed-too-far", step.partition, f"group {step.group}: {step.offset} > {end}")


def checks_for(rules: Rules) -> list[Check]:
    """The checks that these promises call for, in a fixed order."""
    checks: list[Check] = [
        inconsistent_offsets,
        lost_write,
        sends_out_of_order,
        jumps_inside_polls,
        committed_too_far,
        committed_unread,
        two_owners,
        stale_generation,
        stale_end_offset,
        aborted_read,
    ]
    if rules.one_coordinator:
        checks.append(committed_offset_goes_back)
    if rules.idempotent:
        checks.append(duplicate)
    if rules.drained:
        checks += [unseen, torn_transaction]
    if rules.read_committed:
        checks += [precommitted_read, circular_reads]
    if rules.assigned:
        checks.append(jumps_between_polls)
    return checks
