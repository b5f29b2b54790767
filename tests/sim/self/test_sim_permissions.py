"""ACLs and credentials in the simulator: worlds without a finding, and bugs that are found."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.permissions import GuardedCluster
from tests.sim.planted import Bug
from tests.sim.planted_permissions import CAUGHT_BY_SEED, PERMISSION_BUGS
from tests.sim.runs import run_seed
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 100)
# Bugs whose runs are short; the others are slow tests.
IN_SHORT = ("a snapshot has no ACLs", "an answer does not wait for its own node", "a removed ACL still decides")


@pytest.mark.parametrize("seed", slow_after(1, range(1, 61)))
def test_an_answered_change_is_in_force_on_every_node(seed: int) -> None:
    report = run_seed(seed, kind=GuardedCluster)
    assert not report.failed, failure(report)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[] if bug.name in IN_SHORT else pytest.mark.slow, id=bug.name) for bug in PERMISSION_BUGS],
)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([CAUGHT_BY_SEED[bug.name]], OTHER_SEEDS)
        assert any(problem_of(seed, GuardedCluster) for seed in seeds), bug.meaning
