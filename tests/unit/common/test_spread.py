"""Histograms of what was added number by number."""

from __future__ import annotations

from odradek.common.spread import FOLD_AT, Spread, durations, sizes


def test_numbers_are_counted_within_their_bounds() -> None:
    spread = Spread(2, 6, 1)
    for number in (0, 1, 3, 4, 15, 16, 63, 64, 1000):
        spread.add(number)
    found = spread.histogram((("api", "Fetch"),))
    # A bound holds what is below it: 4, 16, 64, each bound included in the next.
    assert found.buckets == (("4.0", 3), ("16.0", 5), ("64.0", 7), ("+Inf", 9))
    assert found.sum == 1166 and found.labels == (("api", "Fetch"),)


def test_folded_values_are_kept_and_zeros_are_added() -> None:
    spread = durations()
    for _ in range(FOLD_AT):
        assert not spread.is_due
        spread.add(2_000_000_000)
    assert spread.is_due and spread.count == FOLD_AT
    spread.fold()
    assert not spread.is_due and spread.count == FOLD_AT
    spread.add(1)
    found = spread.histogram(zeros=5)
    assert found.buckets[0] == (repr(65536e-9), 6) and found.buckets[-1] == ("+Inf", FOLD_AT + 6)
    assert found.sum == 2 * FOLD_AT + 1e-9
    assert spread.histogram(zeros=5) == found, "zeros are not kept"


def test_bounds_of_times_and_sizes() -> None:
    assert [float(bound) for bound, _ in durations().histogram().buckets[:-1]] == [4**n * 65536e-9 for n in range(10)]
    assert [float(bound) for bound, _ in sizes().histogram().buckets[:-1]] == [64.0 * 4**n for n in range(12)]
