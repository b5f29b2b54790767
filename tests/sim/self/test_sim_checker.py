"""Each anomaly: a history that has it, and one that nearly has it."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from typing import Any

import pytest

from tests.sim import anomalies, group_anomalies, mark_anomalies, transaction_anomalies
from tests.sim.history import (
    Assigned,
    Commit,
    EndOffset,
    Heard,
    Identity,
    Marks,
    Operation,
    Outcome,
    Poll,
    Rules,
    Send,
    Step,
    find_anomalies,
)

OK, INFO, FAIL = Outcome.OK, Outcome.INFO, Outcome.FAIL
_clock = itertools.count(1)


def op(process: int, *steps: Step, outcome: Outcome = OK, **more: Any) -> Operation:
    """One operation that begins after all before it have ended."""
    started = next(_clock)
    return Operation(process, outcome, list(steps), started, next(_clock), **more)


def send(process: int, value: int, offset: int | None, *, outcome: Outcome = OK, partition: str = "p") -> Operation:
    return op(process, Send(partition, value, offset), outcome=outcome)


def poll(process: int, *records: tuple[int, int], partition: str = "p", **more: Any) -> Operation:
    return op(process, Poll(partition, list(records)), **more)


def txn(process: int, *steps: Send | Poll, outcome: Outcome = OK) -> Operation:
    return op(process, *steps, outcome=outcome, transactional=True)


def ended(operation: Operation) -> Operation:
    """The operation, with an end that was requested when it began."""
    operation.ending = operation.invoked
    return operation


def given(process: int, generation: int, *partitions: str) -> Operation:
    return op(process, Assigned("g", generation, f"member-{process}", partitions))


def said(process: int, source: str, epoch: int, watermark: int, stable: int = -1) -> Operation:
    return op(process, Marks("p", source, epoch, watermark, stable))


def crossing(*operations: Operation) -> list[Operation]:
    """These all begin before the first of them ends; they end in this order."""
    begun = [next(_clock) for _ in operations]
    for operation, started in zip(operations, begun, strict=True):
        operation.invoked, operation.completed = started, next(_clock)
    return list(operations)


ALL = poll(9, (0, 10), (1, 11), (2, 12))
WRITES = [send(1, 10, 0), send(1, 11, 1), send(1, 12, 2)]


def send_copy(process: int, value: int, offset: int, of: int, *, outcome: Outcome = OK) -> Operation:
    return op(process, Send("out", value, offset, ("p", of)), outcome=outcome, transactional=True)


COPY = send_copy(3, 20, 0, 10)
ALL_COPIED = poll(9, (0, 20), partition="out")
ALL_OF_ONE = poll(8, (0, 10))
EXACTLY_ONCE = Rules(copied=("p",))

HAS_IT = {
    "inconsistent-offsets": [send(1, 10, 0), poll(9, (0, 11)), send(2, 11, 0)],
    "duplicate": [send(1, 10, 0), poll(9, (0, 10), (1, 10))],
    "lost-write": [*WRITES, poll(9, (0, 10)), poll(8, (2, 12))],
    "unseen": [*WRITES, poll(9, (0, 10), (1, 11))],
    "G1a": [send(1, 10, None, outcome=FAIL), poll(9, (0, 10))],
    "precommitted-read": [txn(1, Send("p", 10, 0), Poll("p", [(0, 10)])), poll(9, (0, 10))],
    "G1c": [
        txn(1, Send("p", 10, 0), Poll("q", [(0, 20)])),
        txn(2, Send("q", 20, 0), Poll("p", [(0, 10)])),
    ],
    "poll-skip": [*WRITES, poll(8, (0, 10)), poll(8, (2, 12)), ALL],
    "nonmonotonic-poll": [*WRITES, poll(8, (0, 10), (1, 11)), poll(8, (1, 11), (2, 12)), ALL],
    "int-poll-skip": [*WRITES, op(8, Poll("p", [(0, 10)]), Poll("q", []), Poll("p", [(2, 12)])), ALL],
    "int-nonmonotonic-poll": [*WRITES, op(8, Poll("p", [(1, 11)]), Poll("p", [(0, 10)])), ALL],
    "nonmonotonic-send": [send(1, 11, 1), send(1, 10, 0), poll(9, (0, 10), (1, 11))],
    "int-nonmonotonic-send": [op(1, Send("p", 11, 1), Send("p", 10, 0)), poll(9, (0, 10), (1, 11))],
    "torn-txn": [txn(1, Send("p", 10, 0), Send("q", 20, 0), outcome=INFO), poll(9, (0, 10))],
    "committed-offset-regression": [
        *WRITES,
        ALL,
        op(5, Commit("g", "p", 2)),
        op(5, Commit("g", "p", 1, fetched=True)),
    ],
    "committed-too-far": [*WRITES, ALL, said(9, "node-1, start 1", 3, 3), op(5, Commit("g", "p", 4))],
    "stale-end-offset": [*WRITES, ALL, op(5, EndOffset("p", 2))],
    "watermark-regression": [said(8, "node-1, start 1", 3, 7), said(9, "node-1, start 1", 3, 6)],
    "stable-offset-regression": [said(8, "node-1, start 1", 3, 7, 5), said(9, "node-1, start 1", 3, 8, 4)],
    "epoch-regression": [said(8, "node-1, start 1", 3, 7), said(9, "node-1, start 1", 2, 7)],
    "stable-past-open": [said(8, "node-1, start 1", 3, 1, 1), ended(txn(1, Send("p", 10, 0))), ALL_OF_ONE],
    "producer-epoch-regression": [op(1, Identity("id", 7, 3)), op(2, Identity("id", 7, 2))],
    "not-copied": [*WRITES[:2], COPY, ALL_COPIED, poll(9, (0, 10), (1, 11))],
    "copied-twice": [WRITES[0], COPY, send_copy(3, 21, 1, 10), poll(9, (0, 20), (1, 21), partition="out"), ALL_OF_ONE],
    "two-owners": [given(5, 1, "p"), given(6, 1, "p", "q")],
    "stale-generation": [given(5, 1, "p"), given(6, 2, "p"), op(5, Heard("g", 1))],
    "committed-unread": [
        *WRITES,
        given(5, 1, "p"),
        poll(5, (0, 10), (1, 11)),
        op(5, Commit("g", "p", 3, generation=1)),
        ALL,
    ],
}

# Other histories that have an anomaly.
ALSO = [
    ("int-poll-skip", [*WRITES, poll(8, (0, 10), (2, 12)), ALL]),
    ("int-nonmonotonic-poll", [*WRITES, poll(8, (1, 11), (0, 10)), ALL]),
    # The jump is before the operation's second poll of that partition, and not within any poll.
    ("nonmonotonic-poll", [*WRITES, op(8, Poll("p", [(0, 10)]), Poll("p", [(1, 11)])), poll(8, (1, 11), (2, 12)), ALL]),
    # It has no response, but a part of it was read: inside one operation the order holds.
    (
        "int-nonmonotonic-send",
        [op(1, Send("p", 11), Send("p", 10), outcome=INFO), poll(9, (0, 10), (1, 11))],
    ),
    ("producer-epoch-regression", crossing(op(1, Identity("id", 7, 3)), op(2, Identity("id", 7, 3)))),
    ("stale-generation", [given(5, 1, "p"), given(6, 2, "p"), op(5, Commit("g", "p", 1, generation=1))]),
    ("stale-generation", [given(6, 2, "p"), given(5, 1, "q")]),
    (
        # The commit of generation 1 whose fate is unknown was fenced before the acknowledged one began.
        "committed-offset-regression",
        [
            *WRITES,
            ALL,
            op(5, Commit("g", "p", 1, generation=1), outcome=INFO),
            given(6, 2, "p"),
            op(6, Commit("g", "p", 2, generation=2)),
            op(6, Commit("g", "p", 1, fetched=True)),
        ],
    ),
    (
        "committed-unread",
        [*WRITES, given(5, 1, "p"), poll(5, (0, 10)), op(5, Commit("g", "p", 2, fetched=True)), ALL],
    ),
]

NEARLY = {
    "inconsistent-offsets": [send(1, 10, 0), poll(9, (0, 10)), send(2, 11, 0, outcome=INFO)],
    "duplicate": [send(1, 10, 0), poll(9, (0, 10)), poll(8, (0, 10))],
    "lost-write": [WRITES[0], send(1, 11, None, outcome=INFO), WRITES[2], poll(9, (0, 10), (2, 12))],
    "unseen": [*WRITES, send(1, 13, None, outcome=INFO), ALL],
    "G1a": [send(1, 10, None, outcome=INFO), poll(9, (0, 10))],
    "precommitted-read": [txn(1, Send("p", 10, 0)), txn(1, Poll("p", [(0, 10)]))],
    "G1c": [
        txn(1, Send("p", 10, 0), Send("q", 20, 0)),
        txn(2, Poll("q", [(0, 20)]), Poll("p", [(0, 10)])),
    ],
    "poll-skip": [*WRITES, poll(8, (0, 10)), poll(8, (2, 12), assigns=True), ALL],
    "nonmonotonic-poll": [*WRITES, poll(8, (0, 10), (1, 11)), poll(8, (1, 11), (2, 12), assigns=True), ALL],
    # A marker or compaction has taken the offsets between.
    "int-poll-skip": [send(1, 10, 0), send(1, 12, 5), op(8, Poll("p", [(0, 10)]), Poll("p", [(5, 12)]))],
    "int-nonmonotonic-poll": [*WRITES, poll(8, (1, 11), (0, 10), rebalanced=frozenset({"p"}), assigns=True), ALL],
    "nonmonotonic-send": [send(1, 11, 1), send(2, 10, 0), poll(9, (0, 10), (1, 11))],
    "int-nonmonotonic-send": [op(1, Send("p", 10, 0), Send("p", 11, 1)), poll(9, (0, 10), (1, 11))],
    "torn-txn": [txn(1, Send("p", 10, 0), Send("q", 20, 0), outcome=INFO), send(1, 11, 0), poll(9, (0, 11))],
    "committed-offset-regression": [
        *WRITES,
        ALL,
        op(5, Commit("g", "p", 1)),
        op(5, Commit("g", "p", 2), outcome=INFO),
        op(5, Commit("g", "p", 2, fetched=True)),
    ],
    "committed-too-far": [
        *WRITES,
        ALL,
        op(5, EndOffset("p", 4)),
        op(5, Commit("g", "p", 4)),
        # The record at that offset was aborted.
        said(9, "node-1, start 1", 3, 5),
        op(5, Commit("g", "p", 5)),
    ],
    "stale-end-offset": [
        op(5, EndOffset("p", 0)),
        send(1, 10, 0),
        Operation(5, OK, [EndOffset("p", 1)], next(_clock), next(_clock)),
        poll(9, (0, 10)),
    ],
    # The machine was started again; its successor may have read an older checkpoint.
    "watermark-regression": [said(8, "node-1, start 1", 3, 7), said(9, "node-1, start 2", 3, 6)],
    # Asked before the other was answered.
    "stable-offset-regression": crossing(said(8, "node-1, start 1", 3, 7, 5), said(9, "node-1, start 1", 3, 8, 4)),
    # One that was aborted was open no more when its end was asked for: it may have timed out.
    "stable-past-open": [
        said(8, "node-1, start 1", 3, 2, 0),
        said(8, "node-1, start 2", 3, 3, 2),
        ended(txn(1, Send("p", 11, 1), outcome=FAIL)),
        ended(txn(1, Send("p", 10, 2))),
        said(8, "node-1, start 2", 3, 4, 4),
        poll(9, (2, 10)),
    ],
    # Another replica has not learned of the new leader epoch.
    "epoch-regression": [said(8, "node-1, start 1", 3, 7), said(9, "node-2, start 1", 2, 7)],
    # The producer's epochs are used up: it goes on as another one.
    "producer-epoch-regression": [op(1, Identity("id", 7, 32766)), op(2, Identity("id", 8, 0))],
    # The other value was aborted: no read_committed consumer has seen it.
    "not-copied": [WRITES[0], send(1, 11, 1, outcome=FAIL), COPY, ALL_COPIED, ALL_OF_ONE],
    # The first copy was aborted.
    "copied-twice": [
        WRITES[0],
        send_copy(3, 20, 0, 10, outcome=FAIL),
        send_copy(3, 21, 2, 10),
        poll(9, (2, 21), partition="out"),
        ALL_OF_ONE,
    ],
    "two-owners": [given(5, 1, "p"), given(6, 1, "q"), given(6, 2, "p"), given(5, 1, "p")],
    "stale-generation": [
        given(5, 1, "p"),
        Operation(5, OK, [Heard("g", 1)], 2_000_000, 2_000_003),
        Operation(6, OK, [Assigned("g", 2, "member-6", ("p",))], 2_000_001, 2_000_002),
        # Answered by a coordinator that still loads.
        op(5, Heard("g", 1, "node-2, start 1")),
        op(6, Assigned("h", 3, "member-6", ("p",), "node-2, start 1")),
        op(5, Heard("h", 1, "node-2, start 1, which may have loaded")),
    ],
    "committed-unread": [
        *WRITES,
        given(5, 1, "p"),
        poll(5, (0, 10), (1, 11)),
        given(6, 2, "p"),
        poll(6, (2, 12)),
        op(6, Commit("g", "p", 3, generation=2)),
        ALL,
    ],
}


def found_in(history: list[Operation]) -> set[str]:
    """The anomalies of a history; copies are checked if it has any."""
    copies = any(isinstance(step, Send) and step.copy_of for operation in history for step in operation.steps)
    return {finding.anomaly for finding in find_anomalies(history, EXACTLY_ONCE if copies else Rules())}


@pytest.mark.parametrize("anomaly", HAS_IT)
def test_a_history_that_has_the_anomaly_is_caught(anomaly: str) -> None:
    assert anomaly in found_in(HAS_IT[anomaly])


@pytest.mark.parametrize(("anomaly", "history"), ALSO)
def test_other_histories_that_have_it(anomaly: str, history: list[Operation]) -> None:
    assert anomaly in found_in(history)


@pytest.mark.parametrize("anomaly", NEARLY)
def test_a_history_that_nearly_has_it_is_not(anomaly: str) -> None:
    assert anomaly not in found_in(NEARLY[anomaly])


def test_both_tables_name_every_anomaly() -> None:
    assert HAS_IT.keys() == NEARLY.keys()
    assert {name for name, _ in ALSO} <= HAS_IT.keys()


def test_every_anomaly_that_the_checker_can_name_has_its_histories() -> None:
    """There is no history for G1b, a reader of a part of a transaction: here it is a torn transaction."""
    named = set()
    for module in (anomalies, group_anomalies, mark_anomalies, transaction_anomalies):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value)
    hyphenated = {text for text in named if re.fullmatch(r"[a-z]+(-[a-z]+)+|G1[ac]|duplicate|unseen", text)}
    assert hyphenated == HAS_IT.keys()


# Odd histories that break no promise: transactions do not isolate writes from each other.
ALLOWED = {
    # Each of two transactions wrote behind the other: p has 10 then 11, q has 21 then 20.
    "G0": [
        *crossing(
            txn(1, Send("p", 10, 0), Send("q", 20, 1)),
            txn(2, Send("p", 11, 1), Send("q", 21, 0)),
        ),
        op(9, Poll("p", [(0, 10), (1, 11)]), Poll("q", [(0, 21), (1, 20)])),
    ],
    # The second read what the first wrote, and the first wrote behind the second.
    "G1c with an edge between writes": [
        *crossing(
            txn(1, Send("p", 10, 0), Send("q", 20, 1)),
            txn(2, Poll("p", [(0, 10)]), Send("q", 21, 0)),
        ),
        op(9, Poll("p", [(0, 10)]), Poll("q", [(0, 21), (1, 20)])),
    ],
    # Somebody else's value lies between two of one transaction.
    "int-send-skip": [
        *crossing(txn(1, Send("p", 10, 0), Send("p", 12, 2)), send(2, 11, 1)),
        ALL,
    ],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_histories_are_not_checked_for_isolation_of_writes(name: str) -> None:
    assert find_anomalies(ALLOWED[name]) == []


def test_valid_histories_have_no_anomalies() -> None:
    duplicates = HAS_IT["duplicate"]
    assert not find_anomalies(duplicates, Rules(idempotent=False, assigned=False))
    skips = HAS_IT["poll-skip"]
    assert not find_anomalies(skips, Rules(assigned=False))


def test_a_long_clean_history_has_no_finding() -> None:
    """The size that counts is measured by bench/checker_bench.py: a million operations in under 20 seconds."""
    history = []
    offsets = {"p0": 0, "p1": 0}
    for number in range(20_000):
        partition = f"p{number % 2}"
        history.append(send(number % 2, number, offsets[partition], partition=partition))
        history.append(poll(9 + number % 2, (offsets[partition], number), partition=partition))
        offsets[partition] += 1
    assert find_anomalies(history) == []
