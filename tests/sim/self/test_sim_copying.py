"""The world of exactly-once copies: seeds that hold, and a bug that tears them."""

from __future__ import annotations

import pytest

from tests.sim.bugs import problem_of
from tests.sim.copying import CopyingCluster
from tests.sim.failures import failure
from tests.sim.planted_copying import CAUGHT_BY_SEED, COPYING
from tests.sim.runs import run_seed
from tests.support.order import slow_after

# The shortest of some runs; the others are slow tests.
SHORT, MORE = 3, (1, 2)


@pytest.mark.parametrize("seed", [SHORT, *slow_after(0, MORE)])
def test_the_copy_equals_the_input_once_and_in_order(seed: int) -> None:
    report = run_seed(seed, kind=CopyingCluster)
    assert not report.failed, failure(report)


def test_every_bug_has_its_line() -> None:
    for bug in COPYING:
        with bug.planted():
            pass


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT_BY_SEED)
def test_a_planted_bug_is_caught(name: str) -> None:
    (bug,) = [each for each in COPYING if each.name == name]
    with bug.planted():
        seeds = dict.fromkeys([CAUGHT_BY_SEED[name], *range(1, 20)])
        assert any(problem_of(seed, CopyingCluster) for seed in seeds), bug.meaning
