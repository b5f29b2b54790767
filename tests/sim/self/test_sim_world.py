"""The world of one node: seeds that must hold."""

from __future__ import annotations

import pytest

from tests.sim.failures import failures
from tests.sim.one_node import OneNode
from tests.sim.runs import Report, run_seed

pytestmark = pytest.mark.usefixtures("no_log_lines")

# `make test` runs the first ones, `make test-all` all of them.
SEEDS = 200
SHORT_SEEDS = 5
CHUNK = 10
# The number of first seeds whose events are checked.
LOOKED_AT = 5
first_reports: dict[int, Report] = {}


def run(seed: int) -> Report:
    """One seed, which is not run twice where what happened in it is asked for as well."""
    report = first_reports.get(seed) or run_seed(seed, kind=OneNode)
    if seed <= LOOKED_AT:
        first_reports[seed] = report
    return report


def test_the_first_seeds_hold() -> None:
    failed = failures(run(seed) for seed in range(1, SHORT_SEEDS + 1))
    assert not failed, failed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_seeds_hold(first: int) -> None:
    failed = failures(run(seed) for seed in range(first, first + CHUNK))
    assert not failed, failed


def test_faults_do_happen_and_clients_do_work() -> None:
    reports = [run(seed) for seed in range(1, LOOKED_AT + 1)]
    kinds = {kind for report in reports for kind in report.faults}
    assert {"crash", "power", "pause", "cut", "clock", "slow sync"} <= kinds
    assert sum(report.operations for report in reports) > 1000
