"""Random walks of three replicas, and the bugs that they find where they are planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.replica_walk import ReplicaWalk

STEPS = 400


def walk(directory: Path, seed: int) -> None:
    made = ReplicaWalk(directory / str(seed), seed, min_insync=1 + seed % 2)
    try:
        for _ in range(STEPS):
            made.step()
        made.heal()
    finally:
        made.close()


@pytest.mark.parametrize("seed", range(12))
def test_no_committed_record_is_lost_and_replicas_become_equal(tmp_path: Path, seed: int) -> None:
    walk(tmp_path, seed)
