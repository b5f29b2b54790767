"""A rate holds over any time, for pieces of any size."""

from __future__ import annotations

from random import Random

import pytest

from odradek.common.token_bucket import UNLIMITED, TokenBucket
from odradek.replica.throttle import NOT_THROTTLED, Throttled, throttled


@pytest.mark.parametrize("seed", range(20))
def test_no_more_passes_than_the_rate_the_burst_and_one_overdraft(seed: int) -> None:
    random = Random(seed)
    rate, largest = random.randrange(100, 100_000), random.randrange(1, 50_000)
    bucket = TokenBucket(rate)
    passed, now, start = 0, 5000, 5000
    for _ in range(2000):
        now += random.randrange(20)
        if not bucket.is_exhausted(now):
            size = random.randrange(1, largest + 1)
            bucket.spend(size, now)
            passed += size
        assert passed <= rate * (now - start) / 1000 + rate + largest


def test_a_debt_is_paid_before_more_passes() -> None:
    bucket = TokenBucket(1000)
    bucket.spend(6000, 0)
    wait = bucket.ready_in_ms(0)
    assert wait == 5001
    assert bucket.is_exhausted(wait - 2)
    assert not bucket.is_exhausted(wait)


def test_a_throttle_saves_no_more_than_its_burst() -> None:
    bucket = TokenBucket(1000)
    bucket.spend(1, 0)
    bucket.spend(1001, 10_000_000)
    assert bucket.is_exhausted(10_000_000)


def test_a_rate_of_nothing_and_of_everything() -> None:
    nothing, everything = TokenBucket(0), TokenBucket()
    everything.spend(2**62, 0)
    assert (nothing.ready_in_ms(10**9), everything.ready_in_ms(0)) == (None, 0)
    nothing.change_rate(UNLIMITED, 0)
    assert not nothing.is_exhausted(0)
    nothing.change_rate(0, 0)
    assert nothing.is_exhausted(10**9)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1000)
    bucket.spend(2000, 5000)
    assert bucket.is_exhausted(0)
    assert bucket.is_exhausted(500)


@pytest.mark.parametrize(
    ("leader", "follower", "expected"),
    [
        ("", "", NOT_THROTTLED),
        ("*", "", Throttled(as_leader=True)),
        ("0:1, 3:2", "3:1", Throttled(as_leader=True)),
        ("0:1", "1:1,3:2", Throttled(as_follower=True)),
        ("3:1", "13:2,3:22", NOT_THROTTLED),
    ],
)
def test_which_replicas_are_throttled(leader: str, follower: str, expected: Throttled) -> None:
    overrides = {
        "leader.replication.throttled.replicas": leader,
        "follower.replication.throttled.replicas": follower,
    }
    assert throttled(overrides, 3, 2) == expected
