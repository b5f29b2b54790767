"""`odradek perf` counts in histograms, tracks received numbers, and prints and draws its results."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.errors import CliError
from odradek.cli.perf.histogram import Histogram
from odradek.cli.perf.load import MARK, Counting, Load, ReceivedNumbers, Window, marked, parse_sizes, payloads
from odradek.cli.perf.picture import draw
from odradek.cli.perf.report import as_json, consumer_line, latency_rows, producer_summary, write_csv
from odradek.cli.perf.run import Outcome, unread

VALUES = st.lists(st.integers(0, 10**10), min_size=1, max_size=200)


@given(VALUES, st.floats(0.1, 100))
def test_a_percentile_is_at_most_a_bucket_above_the_true_one(values: list[int], percent: float) -> None:
    shown = Histogram(values).percentile(percent)
    true = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
    assert true <= shown <= true * (1 + 1 / 64)


@given(VALUES, VALUES)
def test_two_histograms_together_are_that_of_all_values(some: list[int], others: list[int]) -> None:
    together, all_at_once = Histogram(some), Histogram(some + others)
    together.merge(Histogram(others))
    assert (together.count, together.mean, together.greatest) == (
        len(some + others),
        all_at_once.mean,
        max(some + others),
    )
    assert [together.percentile(p) for p in (1, 50, 99, 100)] == [all_at_once.percentile(p) for p in (1, 50, 99, 100)]


@given(VALUES, st.integers(0, 10**10))
def test_the_count_above_a_value_is_of_whole_buckets(values: list[int], limit: int) -> None:
    above = Histogram(values).above(limit)
    assert sum(value > limit * (1 + 1 / 32) + 1 for value in values) <= above <= sum(value > limit for value in values)


def test_an_empty_histogram() -> None:
    assert (Histogram().mean, Histogram().percentile(99), Histogram([-5]).greatest) == (0.0, 0, 0)


@given(st.lists(st.integers(0, 50), max_size=100))
def test_received_numbers_are_counted_in_any_order(numbers: list[int]) -> None:
    seen = ReceivedNumbers()
    for number in numbers:
        seen.add(number)
    assert (seen.count, seen.repeated) == (len(set(numbers)), len(numbers) - len(set(numbers)))
    assert set(seen.missing(51)) == set(range(51)) - set(numbers)


def test_records_without_acknowledgement_are_not_missing() -> None:
    seen = ReceivedNumbers()
    for number in (0, 1, 3):
        seen.add(number)
    # Three were acknowledged and three were read, and yet one is to come.
    assert list(unread({0: seen}, [(4, {3})])) == [2]
    seen.add(2)
    assert list(unread({0: seen}, [(4, {3})])) == []
    assert list(unread({0: seen}, [(4, {3}), (3, {1})])) == [0, 2]


def test_threads_share_the_records_and_the_rate() -> None:
    load = Load(rate=100, records=10, threads=4)
    assert [load.of_thread(thread) for thread in range(4)] == [3, 3, 2, 2]
    assert load.interval_ns() == 40e6
    assert Load().interval_ns() == 0


@pytest.mark.parametrize("text", ["", "0", "x", "10-", "10-5", "-5", "9999999999"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(CliError, match="give a number of bytes"):
        parse_sizes(text)


def test_values_have_their_sizes_and_their_marks() -> None:
    assert (parse_sizes("7"), parse_sizes("100-2000")) == ((7, 7), (100, 2000))
    drawn = payloads((100, 200), seed=1)
    assert drawn == payloads((100, 200), seed=1) and {len(each) for each in drawn} <= set(range(100, 201))
    value = marked(drawn[0], 1, 2, 3, 4)
    assert len(value) == len(drawn[0]) and MARK.unpack_from(value) == (1, 2, 3, 4)
    assert len(marked(b"short", 1, 2, 3, 4)) == MARK.size


def test_each_count_of_a_thread_is_in_one_window() -> None:
    counting = Counting()
    counting.window.sent = 3
    assert counting.pop_window().sent == 3
    assert counting.pop_window().sent == 0


def outcome() -> Outcome:
    """Two spans of a second: 2,048 records of 1 KB acknowledged and read in each, and a stall in the second."""
    made = Outcome(seconds=2.0, lost=1)
    for end_s, slowest_us in ((1.0, 2_000), (2.0, 500_000)):
        window = Window(sent=2048, acked=2048, acked_bytes=2048 * 1024, read=2048, read_bytes=2048 * 1024)
        window.ack_us = Histogram([1_000] * 2047 + [slowest_us])
        window.read_us = Histogram([1_500] * 2047 + [slowest_us])
        window.late_us = Histogram([10] * 2048)
        window.errors = {"refused": 1}
        made.windows.append((end_s, window))
        made.total.merge(window)
    return made


def test_a_run_is_summed_up_as_the_tools_of_kafka_do() -> None:
    said = producer_summary(outcome().total, 2.0)
    assert said.startswith(
        "4096 records sent, 2048.0 records/sec (2.00 MB/sec), 1.1 ms avg latency, 500.0 ms max latency, "
    )
    assert said.endswith("1.0 ms 50th, 1.0 ms 95th, 1.0 ms 99th, 1.0 ms 99.9th.")
    began = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000)
    assert consumer_line(outcome(), began) == (
        "2026-01-02 03:04:05:006, 2026-01-02 03:04:07:006, 4.0000, 2.0000, 4096, 2048.0000, 0, 2000, 2.0000, 2048.0000"
    )


def test_a_run_as_rows_and_json() -> None:
    assert [row[0] for row in latency_rows(outcome().total)] == ["due-to-sent", "due-to-acknowledged", "due-to-read"]
    found = as_json(outcome())
    assert (found["acknowledged"], found["lost"], found["errors"]) == (4096, 1, {"refused": 2})
    assert found["latency_ms"]["due_to_read"]["max"] == 500.0
    assert as_json(Outcome(seconds=1.0))["latency_ms"] == {}


def test_a_run_as_csv(tmp_path: Path) -> None:
    write_csv(tmp_path / "run.csv", outcome())
    heading, first, second = (line.split(",") for line in (tmp_path / "run.csv").read_text().splitlines())
    assert len(heading) == len(first) == len(second)
    assert dict(zip(heading, second, strict=True))["ack_max_ms"] == "500.0"
    assert (first[0], second[1]) == ("1.0", "1.0")


@pytest.mark.parametrize("run", [outcome(), Outcome(), Outcome(windows=[(1.0, Window(read=5))])])
def test_a_picture_is_well_formed(run: Outcome) -> None:
    drawn = ElementTree.fromstring(draw(run, "<orders> & more"))
    texts = {each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert "<orders> & more" in texts
    lines = list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == (8 if run.total.acked else len(run.windows))
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 1140 and 0 <= y <= 700
