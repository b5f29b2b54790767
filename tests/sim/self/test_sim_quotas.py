"""Quotas in the simulator: worlds without a finding, and bugs that are found."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.planted import Bug
from tests.sim.planted_quotas import CAUGHT_BY_SEED, QUOTA_BUGS
from tests.sim.runs import run_seed
from tests.sim.throttled import ThrottledCluster
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 40)
# The others are slow tests.
IN_SHORT = ("a connection keeps the quotas that it began with",)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 41)))
def test_quotas_are_in_force_and_keep_none_back_for_good(seed: int) -> None:
    report = run_seed(seed, kind=ThrottledCluster)
    assert not report.failed, failure(report)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, id=bug.name, marks=[] if bug.name in IN_SHORT else pytest.mark.slow) for bug in QUOTA_BUGS],
)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([CAUGHT_BY_SEED[bug.name]], OTHER_SEEDS)
        assert any(problem_of(seed, ThrottledCluster) for seed in seeds), bug.meaning
