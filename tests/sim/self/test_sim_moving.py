"""The world in which partitions move: seeds that hold, moves that happen, and a bug of moving that is caught."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.bugs import problem_of
from tests.sim.failures import failures
from tests.sim.movers import Mover, MovingHouse
from tests.sim.planted_cluster import MOVING
from tests.sim.runs import run_seed

SEEDS = 10
CHUNK = 5


@pytest.fixture(autouse=True)
def no_log_lines() -> Iterator[None]:
    """A captured line holds its error, and so the frames of a world that is over, until the test ends."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_seeds_hold(first: int) -> None:
    failed = failures(run_seed(seed, kind=MovingHouse) for seed in range(first, first + CHUNK))
    assert not failed, failed


def test_moves_begin_under_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    movers: list[Mover] = []
    original = MovingHouse.more_clients

    def watched(self: MovingHouse) -> list[Mover]:
        movers.extend(original(self))
        return movers[-1:]

    monkeypatch.setattr(MovingHouse, "more_clients", watched)
    assert not failures(run_seed(seed, kind=MovingHouse) for seed in range(1, 4))
    assert sum(mover.begun for mover in movers) >= 3


def test_a_move_that_ends_early_is_caught() -> None:
    with MOVING[0].planted():
        assert any(problem_of(seed, MovingHouse) for seed in range(1, 4))
