"""The example of cities: each ride once at its price, and the revenue at the centre is the sum over the cities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from examples.cities import __main__ as example
from examples.cities.__main__ import CITIES, OFFLINE, Report, run
from examples.cities.market import BASE_CENTS, LEAST_CENTS, MOST_CENTS, WINDOW, Event, Zone, events, priced
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek as command


def prices(asks: list[bool]) -> list[int]:
    """The price of a zone after each of these events."""
    zone, found = Zone(), []
    for number, each in enumerate(asks):
        zone.take(Event(number, 0, each, 0))
        found.append(zone.cents)
    return found


def test_prices_react_to_supply_and_demand() -> None:
    rising = prices([True] * 5)
    assert rising == sorted(rising) and (rising[0], rising[-1]) == (2 * BASE_CENTS, MOST_CENTS)
    falling = prices([True, *[False] * 5])
    assert falling == sorted(falling, reverse=True) and falling[-1] == LEAST_CENTS
    # Requests before the window do not count.
    assert prices([True] * 9 + [False] * WINDOW)[-1] == LEAST_CENTS
    made = [ride.cents for ride in priced("berlin", events("berlin", 1000))]
    assert len(set(made)) > 10


def test_a_report_with_a_difference_does_not_hold() -> None:
    def report() -> Report:
        found = Report()
        for name, city in found.cities.items():
            city.expected = list(priced(name, events(name, 60)))
            city.sold.update(city.expected)
            found.revenue |= city.revenue
        return found

    assert report().holds
    changes: list[Callable[[Report], object]] = [
        lambda found: found.revenue.popitem(),
        lambda found: found.revenue.update({next(iter(found.revenue)): (1, 1)}),
        lambda found: found.cities[OFFLINE].expected.pop(),
    ]
    for change in changes:
        wrong = report()
        change(wrong)
        assert not wrong.holds, wrong
    for difference in (0, 1):
        wrong = report()
        city = wrong.cities[OFFLINE]
        ride = city.expected[0]
        city.sold[replace(ride, cents=ride.cents + difference)] += 1
        wrong.revenue |= city.revenue
        assert not wrong.holds, "the table has the same sum, of a ride that should not be"


def test_a_wait_for_the_centre_that_ends_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "TABLE_WITHIN_S", 0)
    monkeypatch.setattr(example, "LOOK_EVERY_S", 0)
    report, table = Report(), cast("Any", SimpleNamespace(now=lambda: {("madrid", None): (7, 70)}))
    report.cities["madrid"].expected = list(priced("madrid", events("madrid", 60)))
    count = len(report.cities["madrid"].expected)
    with pytest.raises(TimeoutError, match=f"madrid has sold 0 of {count} rides, and 7 are at the centre$"):
        example.await_equal(report, table, ["madrid"])


def check(spark: Any, folder: Path, count: int) -> None:
    report = run(spark, folder, count)
    assert report.holds, report
    assert report.cities[OFFLINE].behind > 0
    assert {city for city, _ in report.revenue} == set(CITIES)


def test_revenue_is_the_sum_over_the_cities(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events, and commands in this process."""

    def here(site: ProcessCluster, *words: str) -> None:
        command(site.bootstrap_servers, *words)

    monkeypatch.setattr(example, "command", here)
    check(spark, tmp_path, 800)


@pytest.mark.slow
def test_the_example_as_it_is_run(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, 5000)
