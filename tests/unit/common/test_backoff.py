"""The pauses between attempts: doubled, bounded, begun again, and spread by chance."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from odradek.common.backoff import Backoff


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(50, 1_000)
    assert [backoff.next_ms() for _ in range(7)] == [50, 100, 200, 400, 800, 1_000, 1_000]


def test_a_success_begins_with_the_first_pause_again() -> None:
    backoff = Backoff(10, 1_000)
    assert [backoff.next_ms(), backoff.next_ms()] == [10, 20]
    backoff.reset()
    assert backoff.next_ms() == 10


def test_a_backoff_stays_at_its_longest_pause() -> None:
    backoff, grew = Backoff(2, 4), []
    for _ in range(3):
        grew.append(backoff.at_last)
        backoff.next_ms()
    assert grew == [False, True, True]


def test_a_first_pause_of_nothing_is_followed_by_ones_that_grow() -> None:
    backoff = Backoff(0, 3)
    assert [backoff.next_ms() for _ in range(4)] == [0, 1, 2, 3]


def test_a_first_pause_above_the_longest_is_paused_once() -> None:
    backoff = Backoff(500, 200)
    assert [backoff.next_ms() for _ in range(3)] == [500, 200, 200]


def test_jitter_takes_away_no_more_than_its_share() -> None:
    backoff = Backoff(100, 800, jitter=0.5, random=Random(7))
    pauses = [backoff.next_ms() for _ in range(40)]
    assert all(longest / 2 <= pause <= longest for longest, pause in zip([100, 200, 400], pauses, strict=False))
    later = pauses[3:]
    assert all(400 <= pause <= 800 for pause in later) and len(set(later)) > 1


def test_the_same_seed_draws_the_same_pauses() -> None:
    first, second = (Backoff(100, 800, jitter=1.0, random=Random(3)) for _ in range(2))
    assert [first.next_ms() for _ in range(9)] == [second.next_ms() for _ in range(9)]


async def test_sleep_pauses_by_the_loop_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    backoff = Backoff(20, 40)
    for _ in range(3):
        await backoff.sleep()
    assert slept == [0.02, 0.04, 0.04]
