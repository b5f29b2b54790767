"""Machines that die whole in the simulator: nothing is lost where replicas are spread over them, and else it is."""

from __future__ import annotations

import functools

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failure
from tests.sim.hosts import HostsCluster
from tests.sim.planted import Bug
from tests.sim.planted_hosts import HOST_BUGS
from tests.sim.runs import Report, run_seed
from tests.support.order import slow_after

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
SEEDS = range(1, 30)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 21)))
def test_a_host_that_dies_takes_nothing_acknowledged_along(seed: int) -> None:
    report = run(seed)
    assert not report.failed, failure(report)


def test_hosts_lose_their_disks() -> None:
    assert any(run(seed).faults.get("host lost its disks") for seed in SEEDS)


@functools.cache
def run(seed: int) -> Report:
    return run_seed(seed, kind=HostsCluster)


@pytest.mark.slow
@pytest.mark.parametrize("bug", HOST_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        found = (problem_of(seed, HostsCluster) for seed in SEEDS)
        assert any("committed" in problem or "marks went back" in problem for problem in found), bug.meaning
