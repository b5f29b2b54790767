"""The world whose brokers have two directories: seeds that hold, moves that happen, bugs of moves that are caught."""

from __future__ import annotations

import pytest

from tests.sim.bugs import problem_of
from tests.sim.directories import TwoDirectories
from tests.sim.failures import failure, failures
from tests.sim.planted_directories import CAUGHT_BY_SEED, DIRECTORY_BUGS
from tests.sim.runs import run_seed

SEEDS = 1
MORE_SEEDS = 40
BY_NAME = {bug.name: bug for bug in DIRECTORY_BUGS}


pytestmark = pytest.mark.usefixtures("no_log_lines")


def test_replicas_change_their_directories_under_faults() -> None:
    reports = [run_seed(seed, kind=TwoDirectories) for seed in range(1, SEEDS + 1)]
    assert not (failed := failures(reports)), failed
    assert all(report.faults.get("directory changed", 0) > 5 for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS + 1, MORE_SEEDS + 1))
def test_more_seeds_keep_their_directories(seed: int) -> None:
    report = run_seed(seed, kind=TwoDirectories)
    assert not report.failed, failure(report)


def test_every_bug_has_its_line() -> None:
    for bug in DIRECTORY_BUGS:
        with bug.planted():
            pass


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT_BY_SEED)
def test_a_planted_bug_is_caught_by_its_seed(name: str) -> None:
    with BY_NAME[name].planted():
        assert problem_of(CAUGHT_BY_SEED[name], TwoDirectories), BY_NAME[name].meaning
