"""The answers of brokers to tools at the end are checked: with a wrong one a run does not end."""

from __future__ import annotations

import pytest

from tests.sim.bugs import problem_of
from tests.sim.one_node import OneNode
from tests.sim.planted import Bug
from tests.sim.runs import Scenario
from tests.sim.transactional import TransactionalNode

# The others are slow tests.
IN_SHORT = "ended transactions have topics"
# Each is caught by the first seed.
WRONG_ANSWERS: tuple[tuple[type[Scenario], Bug], ...] = (
    (
        OneNode,
        Bug(
            "groups that are there are dead",
            "coordinator.group.queries:describe_groups",
            "if group is not None:",
            "if group is None:",
            "DescribeGroups knows no group",
        ),
    ),
    (
        TransactionalNode,
        Bug(
            "ended transactions have topics",
            "coordinator.transaction.queries:describe_transaction",
            "transaction_state=present.state.label,",
            'transaction_state="Ongoing",',
            "DescribeTransactions says that a transaction is open which has ended",
        ),
    ),
    (
        TransactionalNode,
        Bug(
            "no transaction is listed",
            "coordinator.transaction.queries:list_transactions",
            "if states and not wanted:",
            "if True:",
            "ListTransactions knows none of them",
        ),
    ),
)


@pytest.mark.parametrize(
    ("kind", "bug"),
    [
        pytest.param(*each, id=each[1].name, marks=[] if each[1].name == IN_SHORT else pytest.mark.slow)
        for each in WRONG_ANSWERS
    ],
)
def test_a_wrong_answer_is_noticed(kind: type[Scenario], bug: Bug) -> None:
    with bug.planted():
        assert "no progress" in problem_of(1, kind), bug.meaning
