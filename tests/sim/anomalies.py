"""The anomalies of records: one function for each, which takes the analysis of a history and yields findings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.sim.group_anomalies import committed_offset_goes_back, committed_unread, stale_generation, two_owners
from tests.sim.history import (
    Analysis,
    Finding,
    Operation,
    Outcome,
    Partition,
    Poll,
    Rules,
    Send,
    Value,
)
from tests.sim.mark_anomalies import committed_too_far, marks_go_back, stale_end_offset
from tests.sim.transaction_anomalies import (
    circular_reads,
    copies,
    identity_goes_back,
    precommitted_read,
    stable_past_open,
    torn_transaction,
)

Check = Callable[[Analysis], Iterator[Finding]]


def inconsistent_offsets(analysis: Analysis) -> Iterator[Finding]:
    """An offset with two values: the value that was read there before is not there any more."""
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
    """An acknowledged value that no consumer read, after all partitions were read to their end."""
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


def polled(analysis: Analysis) -> Iterator[tuple[Operation, Partition, list[int]]]:
    """Yield, for each ok operation and partition, the indexes of all values that its polls returned, in order."""
    orders = analysis.orders
    for operation in analysis.history:
        if operation.outcome is not Outcome.OK:
            continue
        found: dict[Partition, list[int]] = {}
        for step in operation.steps:
            if isinstance(step, Poll) and step.records:
                index_of_offset = orders[step.partition].index_of_offset
                found.setdefault(step.partition, []).extend([index_of_offset[offset] for offset, _ in step.records])
        for partition, indexes in found.items():
            yield operation, partition, indexes


def jumps_between_polls(analysis: Analysis) -> Iterator[Finding]:
    """Successive polls of one process that skip values, or go back, without a new assignment between."""
    last: dict[int, dict[Partition, int]] = {}
    assigned: Operation | None = None
    for operation, partition, indexes in polled(analysis):
        if operation.assigns and operation is not assigned:
            assigned = operation
            last.pop(operation.process, None)
        known = last.setdefault(operation.process, {})
        if partition in known:
            step = indexes[0] - known[partition]
            if step > 1:
                yield Finding("poll-skip", partition, f"process {operation.process} skipped {step - 1} values")
            elif step < 1:
                yield Finding("nonmonotonic-poll", partition, f"process {operation.process} went back {1 - step}")
        known[partition] = indexes[-1]


def jumps_inside_polls(analysis: Analysis) -> Iterator[Finding]:
    """The same inside one operation, over all its polls; a rebalance of that partition alone excuses it."""
    for operation, partition, indexes in polled(analysis):
        if indexes[-1] - indexes[0] == len(indexes) - 1 and sorted(indexes) == indexes:
            continue
        if partition in operation.rebalanced:
            continue
        for before, after in pairwise(indexes):
            detail = f"process {operation.process}: value {after} of the log came after value {before}"
            if after - before > 1:
                yield Finding("int-poll-skip", partition, detail)
            elif after - before < 1:
                yield Finding("int-nonmonotonic-poll", partition, detail)


def sends_out_of_order(analysis: Analysis) -> Iterator[Finding]:
    """A later send of a process that lies before an earlier one.

    Of two operations only those that were acknowledged count: an unanswered one may be stored late. Inside one
    operation the order holds wherever any of it was stored.
    """
    last: dict[tuple[int, Partition], tuple[int, Value]] = {}
    for operation in analysis.history:
        if not analysis.must_have_committed(operation):
            continue
        inside: dict[Partition, tuple[int, Value]] = {}
        for send in operation.steps:
            if not isinstance(send, Send):
                continue
            partition = send.partition
            order = analysis.orders.get(partition)
            index = order.first_index(send.value) if order else None
            if index is None:
                continue
            if partition in inside:
                name, before = "int-nonmonotonic-send", inside[partition]
            else:
                name, before = "nonmonotonic-send", last.get((operation.process, partition), (-1, -1))
            if index <= before[0] and (partition in inside or operation.outcome is Outcome.OK):
                yield Finding(name, partition, f"{send.value} lies before the earlier {before[1]}")
            inside[partition] = (index, send.value)
            if operation.outcome is Outcome.OK:
                last[operation.process, partition] = (index, send.value)


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
        marks_go_back,
        aborted_read,
        identity_goes_back,
    ]
    if rules.one_coordinator:
        checks.append(committed_offset_goes_back)
    if rules.idempotent:
        checks.append(duplicate)
    if rules.drained:
        checks += [unseen, torn_transaction]
        if rules.copied:
            checks.append(functools.partial(copies, copied=rules.copied))
    if rules.read_committed:
        checks += [precommitted_read, circular_reads, stable_past_open]
    if rules.assigned:
        checks.append(jumps_between_polls)
    return checks
