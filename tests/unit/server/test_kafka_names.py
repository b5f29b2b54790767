"""Kafka's names of metrics: the table, and the rates of counters over the last minute."""

from __future__ import annotations

import re

import pytest

from odradek.common.metrics import Histogram
from odradek.server.kafka_names.not_given import NOT_GIVEN
from odradek.server.kafka_names.recent import Recent
from odradek.server.kafka_names.table import COUNTER, EXPORTER, TABLE
from tools.known_dashboards import ROWS, panels

MINUTE_MS = 60_000


def test_rates_are_of_the_last_minute() -> None:
    recent = Recent(0)
    recent.begin(10_000)
    assert recent.rate("records", 100) == 0, "what was there at the start was not won since"
    recent.begin(11_000)
    assert recent.rate("records", 130) == 30, "since the first scrape, where that is less than a minute ago"
    recent.begin(70_000)
    assert recent.rate("records", 160) == 1
    recent.begin(130_000)
    assert recent.rate("records", 160) == 0
    recent.begin(131_000)
    assert recent.rate("records", 221) == 1, "a scrape that follows another at once has a whole minute, too"


def test_a_rate_is_never_below_zero() -> None:
    recent = Recent(0)
    recent.begin(15_000)
    assert recent.rate("offset", 5_000_000) == 0
    recent.begin(30_000)
    assert recent.rate("offset", 4_999_999) == 0


def test_a_counter_that_falls_was_reset_to_zero() -> None:
    recent = Recent(0)
    recent.begin(MINUTE_MS)
    assert recent.increase("records", (50, 1)) == [50, 1]
    recent.begin(2 * MINUTE_MS)
    assert recent.increase("records", (20, 2)) == [20, 2]
    recent.begin(3 * MINUTE_MS)
    assert recent.increase("records", (25, 2)) == [5, 0]


def test_scrapes_keep_no_more_than_a_minute() -> None:
    recent = Recent(0)
    for second in range(1, 1000):
        recent.begin(second * 1000)
        recent.increase("records", (second,))
    assert 60 <= recent.seconds < 72
    assert len(recent._kept) <= 8


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((10, 10, 10), [0.5, 0.99]),
        ((0, 10, 10), [2.5, 3.97]),
        ((5, 10, 10), [1, 3.94]),
        ((0, 0, 10), [4, 4]),
        ((0, 0, 0), [0, 0]),
    ],
)
def test_quantiles_are_interpolated(counts: tuple[int, int, int], expected: list[float]) -> None:
    recent = Recent(0)
    recent.begin(1000)
    spread = Histogram(tuple(zip(("1", "4", "+Inf"), counts, strict=True)), 0)
    assert recent.quantiles("times", spread, (0.5, 0.99)) == pytest.approx(expected)


def test_quantiles_are_of_the_last_interval() -> None:
    recent = Recent(0)
    recent.begin(MINUTE_MS)
    recent.quantiles("times", Histogram((("1", 90), ("4", 90), ("+Inf", 90)), 0), (0.5,))
    recent.begin(2 * MINUTE_MS)
    now = Histogram((("1", 90), ("4", 100), ("+Inf", 100)), 0)
    assert recent.quantiles("times", now, (0.5,)) == pytest.approx([2.5])


def test_names_are_those_that_the_rules_make_of_beans() -> None:
    for row in TABLE:
        if not row.bean.startswith("kafka."):
            assert EXPORTER in row.bean
            continue
        domain, kind, rest = re.match(r"([\w.]+):type=([\w-]+)(.*)", row.bean).groups()  # type: ignore[union-attr]  # each name matches
        name = re.search(r",name=([\w-]+)", rest) or re.search(r"<>([\w-]+)", rest)
        assert name is not None, row.bean
        last = re.sub(r"Percent$", "_percent", re.sub(r"PerSec$", "_total", name[1]))
        if kind in ("raft-metrics", "raft-channel-metrics", "broker-metadata-metrics"):
            kind = kind.replace("-", "")
        made = f"{domain}_{kind}_{last}".lower().replace(".", "_").replace("-", "_")
        assert row.name.removesuffix("_count") == made.removesuffix("_count"), row.bean
        assert row.name.endswith("_total") == (row.kind == COUNTER), row.name


def test_each_name_is_there_once_and_is_given_or_not() -> None:
    assert len(ROWS) == len(TABLE)
    assert not set(ROWS) & set(NOT_GIVEN)


def test_each_query_of_a_known_panel_has_data_or_a_reason() -> None:
    queries = [each for some in panels().values() for each in some]
    assert len(panels()) > 90
    assert [each.metric for each in queries if each.why_not == "unknown"] == []
    filled = [each for each in queries if not each.why_not]
    assert len(filled) > 90
    for each in filled:
        if each.metric in ROWS:
            assert set(each.labels) <= set(ROWS[each.metric].reading.labels), each
