"""Rates over windows, and the waiting that brings a client back to its quota."""

from __future__ import annotations

from random import Random

import pytest

from odradek.security.quota.rate import WindowedRate

MIB = 1024 * 1024


def test_a_first_burst_is_spread_over_the_full_windows() -> None:
    rate = WindowedRate(11, 1000)
    rate.add(500, 0)
    assert rate.per_second(0) == 50
    assert rate.throttle_ms(50, 0) == 0
    rate.add(500, 0)
    assert rate.throttle_ms(50, 0) == 10_000


def test_the_rate_falls_to_the_limit_after_the_wait() -> None:
    rate = WindowedRate(11, 1000)
    rate.add(600, 0)
    rate.add(500, 999)
    rate.add(300, 10_500)
    wait_ms = rate.throttle_ms(120, 10_500)
    assert wait_ms == 1167
    assert rate.per_second(10_500 + wait_ms) <= 120


def test_a_window_is_forgotten_when_as_many_have_passed() -> None:
    rate = WindowedRate(2, 1000)
    rate.add(7, 0)
    assert rate.per_second(1999) == pytest.approx(7 * 1000 / 1999)
    assert rate.per_second(2000) == 0
    assert WindowedRate(1, 1000).per_second(0) == 0


def test_a_limit_of_nothing_waits_until_all_is_forgotten() -> None:
    rate = WindowedRate(11, 1000)
    assert rate.throttle_ms(0, 0) == 0
    rate.add(1, 0)
    assert rate.throttle_ms(0, 0) == 11_000
    assert rate.throttle_ms(0, 11_000) == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_waits_as_it_must_gets_its_quota(seed: int) -> None:
    random = Random(seed)
    rate, now_ms, sent = WindowedRate(11, 1000), 0, 0
    while now_ms < 300_000:
        size = random.randrange(1, 256 * 1024)
        rate.add(size, now_ms)
        sent += size
        now_ms += rate.throttle_ms(MIB, now_ms) + random.randrange(3)
    assert 0.9 < sent / MIB / (now_ms / 1000) < 1.1
