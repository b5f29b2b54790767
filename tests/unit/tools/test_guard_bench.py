"""The confidence interval of the ratio that a benchmark prints."""

from __future__ import annotations

from random import Random

from bench.guard_bench import median_interval


def test_the_interval_has_the_median_in_nineteen_cases_of_twenty() -> None:
    random, found = Random(1), 0
    for _ in range(1000):
        least, most = median_interval([random.lognormvariate(0, 0.2) for _ in range(60)])
        found += least <= 1.0 <= most
    assert 930 <= found <= 970


def test_few_values_have_a_wide_interval() -> None:
    assert median_interval([1.2]) == (1.2, 1.2)
    assert median_interval([1.3, 1.1, 1.2]) == (1.1, 1.3)
