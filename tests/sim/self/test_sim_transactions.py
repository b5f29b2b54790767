"""Transactions in the simulator: worlds without a finding, and bugs that are found."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.planted import Bug
from tests.sim.planted_transactions import CAUGHT_BY_SEED, SOONER, TRANSACTIONS
from tests.sim.runs import run_seed
from tests.sim.transactional import TransactionalNode
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 60)
# Bugs whose seeds take long are slow tests.
LONG = ("owed markers forgotten", "marker written again", "aborted offsets committed")


@pytest.mark.parametrize("seed", slow_after(2, range(1, 13)))
def test_no_interleaving_tears_a_transaction(seed: int) -> None:
    report = run_seed(seed, kind=TransactionalNode)
    assert not report.failed, failure(report)


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=pytest.mark.slow if bug.name in LONG else [], id=bug.name)
        for bug in TRANSACTIONS
        if bug.name in CAUGHT_BY_SEED
    ],
)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([SOONER.get(bug.name, CAUGHT_BY_SEED[bug.name])], OTHER_SEEDS)
        assert any(problem_of(seed, TransactionalNode) for seed in seeds), bug.meaning


def test_every_bug_has_its_line() -> None:
    for bug in TRANSACTIONS:
        with bug.planted():
            pass
