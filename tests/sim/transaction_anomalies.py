"""The anomalies of transactions: one function for each, which takes the analysis of a history and yields findings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from tests.sim.history import Analysis, Finding, Identity, Marks, Operation, Outcome, Partition, Send, Value


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


def torn_transaction(analysis: Analysis) -> Iterator[Finding]:
    """A transaction of which a part was read and a part was not, after everything was read."""
    for operation in analysis.history:
        if not operation.transactional:
            continue
        sends = [step for step in operation.steps if isinstance(step, Send)]
        seen = [send.value in analysis.ok_read.get(send.partition, ()) for send in sends]
        if any(seen) and not all(seen):
            missing = [send.value for send, was_seen in zip(sends, seen, strict=True) if not was_seen]
            yield Finding("torn-txn", sends[0].partition, f"process {operation.process}: {missing} are missing")


def stable_past_open(analysis: Analysis) -> Iterator[Finding]:
    """A stable offset that went past a record whose transaction was open, and was committed later.

    Until the end of a transaction is asked for it may yet be aborted. One that timed out is never committed.
    """
    said = _highest_stable(analysis)
    for operation, send in analysis.sends():
        if not (operation.transactional and operation.ending and send.offset is not None):
            continue
        if not analysis.must_have_committed(operation):
            continue
        before, highest = said.get(send.partition, ([], []))
        at = bisect_left(before, operation.ending)
        if at and highest[at - 1] > send.offset:
            detail = f"stable up to {highest[at - 1]} before the commit of {send.value} at {send.offset} was asked for"
            yield Finding("stable-past-open", send.partition, detail)


def _highest_stable(analysis: Analysis) -> dict[Partition, tuple[list[int], list[int]]]:
    """The times of the answers with each partition's last stable offset, and the highest one answered by then."""
    said: dict[Partition, tuple[list[int], list[int]]] = {}
    for operation in analysis.history:
        for step in operation.steps if operation.outcome is Outcome.OK else ():
            if isinstance(step, Marks):
                times, highest = said.setdefault(step.partition, ([], []))
                times.append(operation.completed)
                highest.append(max(step.last_stable_offset, highest[-1] if highest else -1))
    return said


def copies(analysis: Analysis, *, copied: tuple[Partition, ...]) -> Iterator[Finding]:
    """Exactly once: when all is over, every committed value of an input has one copy that readers of commits saw."""
    made: dict[tuple[Partition, Value], list[tuple[Partition, Value]]] = {}
    for _, send in analysis.sends():
        if send.copy_of is not None and send.value in analysis.ok_read.get(send.partition, ()):
            made.setdefault(send.copy_of, []).append((send.partition, send.value))
    for partition in copied:
        for value in sorted(analysis.ok_read.get(partition, ())):
            found = made.get((partition, value), [])
            if not found:
                yield Finding("not-copied", partition, f"value {value} has no copy")
            elif len(found) > 1:
                yield Finding("copied-twice", partition, f"value {value} has the copies {found}")


def identity_goes_back(analysis: Analysis) -> Iterator[Finding]:
    """A transactional id that is given a producer epoch twice, or a lower one than before it asked."""
    events: list[tuple[int, int, Operation, Identity]] = []
    for operation in analysis.history:
        if operation.outcome is Outcome.OK:
            for step in operation.steps:
                if isinstance(step, Identity):
                    events.append((operation.invoked, 0, operation, step))
                    events.append((operation.completed, 1, operation, step))
    events.sort(key=lambda event: event[:2])
    given: dict[tuple[str, int, int], int] = {}
    highest: dict[tuple[str, int], int] = {}
    before: dict[int, int] = {}
    for _, ends, operation, step in events:
        producer = (step.transactional_id, step.producer_id)
        if not ends:
            before[id(step)] = highest.get(producer, -1)
            continue
        who = f"process {operation.process}: id {step.transactional_id}, producer {step.producer_id}"
        earlier = before.pop(id(step))
        if (*producer, step.producer_epoch) in given:
            yield Finding("producer-epoch-regression", "", f"{who}: epoch {step.producer_epoch} was given twice")
        elif step.producer_epoch < earlier:
            yield Finding("producer-epoch-regression", "", f"{who}: epoch {step.producer_epoch} after {earlier}")
        given[(*producer, step.producer_epoch)] = operation.process
        highest[producer] = max(highest.get(producer, -1), step.producer_epoch)
