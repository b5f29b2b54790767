"""The world of many nodes: the second half of the seeds that must hold, in a file of its own for another worker."""

from __future__ import annotations

import pytest

from tests.sim.cluster import ManyNodes
from tests.sim.failures import failures
from tests.sim.runs import run_seed
from tests.sim.self.test_sim_cluster import CHUNK, SEEDS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_log_lines")]


@pytest.mark.parametrize("first", range(SEEDS + 1, 2 * SEEDS + 1, CHUNK))
def test_seeds_hold(first: int) -> None:
    failed = failures(run_seed(seed, kind=ManyNodes) for seed in range(first, first + CHUNK))
    assert not failed, failed
