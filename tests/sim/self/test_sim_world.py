"""The world of one node: seeds that must hold."""

from __future__ import annotations

import pytest

from tests.sim.failures import failures
from tests.sim.one_node import OneNode
from tests.sim.runs import run_seed

SEEDS = 200
CHUNK = 20


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_seeds_hold(first: int) -> None:
    failed = failures(run_seed(seed, kind=OneNode) for seed in range(first, first + CHUNK))
    assert not failed, failed


def test_faults_do_happen_and_clients_do_work() -> None:
    reports = [run_seed(seed, kind=OneNode) for seed in range(1, 16)]
    kinds = {kind for report in reports for kind in report.faults}
    assert {"crash", "power", "pause", "cut", "clock", "slow sync"} <= kinds
    assert sum(report.operations for report in reports) > 2000
