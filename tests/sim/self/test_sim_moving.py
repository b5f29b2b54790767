"""The world in which partitions move: seeds that hold, moves that happen, and a bug of moving that is caught."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.failures import failures
from tests.sim.movers import Mover, MovingHouse
from tests.sim.planted import Bug
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
    assert not run_seed(1, kind=MovingHouse).failed
    assert sum(mover.begun for mover in movers) >= 3


EARLY = Bug(
    "a move ends before its replicas are in sync",
    "controller.election:_complete_reassignment",
    "if staying and set(plan.adding) <= set(staying):",
    "if plan.adding:\n    plan.isr = plan.isr + tuple(r for r in plan.adding if r not in plan.isr)\n"
    "    staying = tuple(replica for replica in plan.isr if replica not in plan.removing)\n"
    "if staying:",
    "replicas that have nothing count as in sync",
)


def test_a_move_that_ends_early_is_caught() -> None:
    with EARLY.planted():
        assert any(run_seed(seed, kind=MovingHouse).failed for seed in range(1, 4))
