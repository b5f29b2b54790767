"""Quorums in the box: seeds without a problem, and planted bugs that seeds show."""

from __future__ import annotations

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.planted import Bug
from tests.sim.quorum_box import QuorumRun
from tests.sim.quorum_bugs import BY_SEED
from tests.sim.runs import run_seed
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(60)
# Seeds above this one are slow tests; 71 once found a bug.
SHORT_SEEDS = 1
# Bugs whose seeds take long are slow tests, too.
LONG = ("a leader that cannot write goes on", "a leader says nothing in its epoch")


@pytest.mark.parametrize("seed", [*slow_after(SHORT_SEEDS, range(8)), 71])
def test_a_seed_finds_nothing(seed: int) -> None:
    report = run_seed(seed, kind=QuorumRun)
    assert not report.failed, failure(report)
    assert report.operations > 0


@pytest.mark.parametrize(
    ("bug", "seed"),
    [pytest.param(*each, id=each[0].name, marks=pytest.mark.slow if each[0].name in LONG else []) for each in BY_SEED],
)
def test_a_planted_bug_is_caught_by_its_seed(bug: Bug, seed: int) -> None:
    with bug.planted():
        assert any(problem_of(number, QuorumRun) for number in (seed, *OTHER_SEEDS)), bug.meaning
