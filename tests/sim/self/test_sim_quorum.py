"""Quorums in the box: seeds without a problem, the same run twice, and planted bugs that seeds show."""

from __future__ import annotations

import pytest

from tests.sim.planted import Bug
from tests.sim.quorum_box import run_quorum_seed
from tests.sim.quorum_bugs import BY_SEED


@pytest.mark.parametrize("seed", [*range(8), 71])
def test_a_seed_finds_nothing(seed: int) -> None:
    report = run_quorum_seed(seed)
    assert not report.problems
    assert report.operations > 0 and report.leaders > 0


def test_the_same_seed_is_the_same_run() -> None:
    assert run_quorum_seed(4).trace == run_quorum_seed(4).trace


@pytest.mark.parametrize(("bug", "seed"), BY_SEED, ids=lambda value: value.name if isinstance(value, Bug) else "")
def test_a_planted_bug_is_caught_by_its_seed(bug: Bug, seed: int) -> None:
    with bug.planted():
        assert any(run_quorum_seed(number).problems for number in (seed, *range(10))), bug.meaning
