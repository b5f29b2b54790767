"""The world of two clusters that are linked: green as it is, and not with bugs in what keeps mirrors."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.linked import LinkedClusters
from tests.sim.planted import Bug
from tests.sim.planted_linked import CAUGHT_BY_SEED, LINK_BUGS
from tests.sim.runs import run_seed
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 41)
# The shortest of some runs; the others are slow tests.
SHORT = 3


@pytest.mark.parametrize("seed", [SHORT, *slow_after(0, (each for each in range(1, 31) if each != SHORT))])
def test_mirrors_are_what_their_source_is(seed: int) -> None:
    report = run_seed(seed, kind=LinkedClusters)
    assert not report.failed, failure(report)


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in LINK_BUGS if bug.name in CAUGHT_BY_SEED], ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([CAUGHT_BY_SEED[bug.name]], OTHER_SEEDS)
        assert any(problem_of(seed, LinkedClusters) for seed in seeds), bug.meaning
