"""Transactions that live long in the simulator: worlds without a finding, and bugs that are found."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.lasting import LastingCluster
from tests.sim.planted import Bug
from tests.sim.planted_lasting import CAUGHT_BY_SEED, LASTING_BUGS
from tests.sim.runs import run_seed
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 30)
# Bugs that the first seed finds; the others are slow tests.
IN_SHORT = ("the newest open transaction counts",)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 31)))
def test_a_transaction_outlives_what_it_is_made_of(seed: int) -> None:
    report = run_seed(seed, kind=LastingCluster)
    assert not report.failed, failure(report)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[] if bug.name in IN_SHORT else pytest.mark.slow, id=bug.name) for bug in LASTING_BUGS],
)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([CAUGHT_BY_SEED[bug.name]], OTHER_SEEDS)
        assert any(problem_of(seed, LastingCluster) for seed in seeds), bug.meaning


def test_every_bug_has_its_line() -> None:
    for bug in LASTING_BUGS:
        with bug.planted():
            pass
