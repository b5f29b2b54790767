"""Bugs planted into the log: each is found by random walks, or by moves between directories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from odradek.common.errors import OdradekError
from tests.sim.planted import Bug
from tests.support.models.log_walk import walk
from tests.support.planted.log_bugs import IN_MOVES, IN_WALKS
from tests.unit.replica.test_log_dir_moves import compare_cut_log_and_copy, crash_at

# Seeds that found one of these when it was a real bug come first.
SEEDS = (11, 91, 112, 136, 551, 635, 730, 930, *range(100))
# These take hundreds of walks: a slow test.
LONG = ("snapshot not durable before what it replaces goes",)
FOUND = (AssertionError, OdradekError, OSError, ValueError, IndexError, KeyError)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=pytest.mark.slow if bug.name in LONG else []) for bug in IN_WALKS],
    ids=lambda bug: bug.name.replace(" ", "-"),
)
def test_walks_find_a_planted_bug(bug: Bug) -> None:
    with bug.planted():
        for seed in SEEDS:
            try:
                walk(seed)
            except FOUND:
                return
    pytest.fail(f"{bug.name}: {len(SEEDS)} walks did not find it")


async def moves_that_die() -> None:
    for seed in range(2):
        for power in (True, False):
            change = 1
            while await crash_at(seed, change, power=power):
                change += 1


async def copies_of_cut_logs() -> None:
    for seed in range(60):
        compare_cut_log_and_copy(seed)


@pytest.mark.parametrize("bug", IN_MOVES, ids=lambda bug: bug.name.replace(" ", "-"))
async def test_moves_find_a_planted_bug(bug: Bug) -> None:
    catchers: tuple[Callable[[], Awaitable[None]], ...] = (copies_of_cut_logs, moves_that_die)
    with bug.planted():
        for catcher in catchers:
            try:
                await catcher()
            except FOUND:
                return
    pytest.fail(f"{bug.name}: no move found it")
