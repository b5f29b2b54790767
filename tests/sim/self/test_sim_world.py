"""The world of one node: seeds that must hold, and runs that must be the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.one_node import run_seed

ROOT = Path(__file__).resolve().parents[3]
SEEDS = 200
CHUNK = 20


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_seeds_hold(first: int) -> None:
    failed = []
    for seed in range(first, first + CHUNK):
        report = run_seed(seed)
        if report.failed:
            failed.append(f"seed {seed}: {report.problems[:3]}; to see it: make sim SEED={seed}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", [7, 30, 102])
def test_a_seed_is_the_same_run_each_time_whatever_strings_hash_to(seed: int) -> None:
    def trace(hash_seed: str) -> str:
        code = f"from tests.sim.one_node import run_seed; r = run_seed({seed}); print(r.trace, r.simulated_s)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert trace("1") == trace("1") == trace("2")


def test_a_seed_is_the_same_after_another_in_one_process() -> None:
    alone = run_seed(5)
    run_seed(6)
    again = run_seed(5)
    assert (alone.trace, alone.operations) == (again.trace, again.operations)


def test_faults_do_happen_and_clients_do_work() -> None:
    reports = [run_seed(seed) for seed in range(1, 16)]
    kinds = {kind for report in reports for kind in report.faults}
    assert {"crash", "power", "pause", "cut", "clock", "slow sync"} <= kinds
    assert sum(report.operations for report in reports) > 2000
