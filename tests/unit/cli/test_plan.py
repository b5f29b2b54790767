"""`odradek plan`: the plan for a demand, the figures that it cites, and its settings, which a node accepts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.plan import figures
from odradek.cli.plan.profiles import WHAT, Profile, of_librdkafka, settings
from odradek.cli.plan.sizing import FULL, PARTITION_BYTES_S, Demand, lines, plan, shown_bytes, warnings
from odradek.server.startup.honoured_settings import honoured_settings
from odradek.settings.broker import resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import zero_config

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = Demand(size=10_000, rate=3_000, latency_ms=100)
DEMANDS = st.builds(
    Demand,
    size=st.integers(1, 5_000_000),
    rate=st.floats(0.1, 1e6),
    latency_ms=st.floats(1, 10_000),
    retention_s=st.floats(60, 1e8),
    growth=st.floats(1, 10),
    outlive=st.integers(0, 3),
    readers=st.integers(0, 10),
    consumer_rate=st.floats(100, 1e6),
    compression=st.floats(1, 10),
)


def test_the_buffers_of_producers_hold_what_comes_in_the_latency() -> None:
    """10 kB x 3,000/s x 100 ms are 3 MB."""
    assert plan(EXAMPLE).in_flight_bytes == 3_000_000
    (shown,) = [line.amount for line in lines(EXAMPLE, plan(EXAMPLE)) if line.what == "producers' buffers"]
    assert shown.startswith("at least 3.0 MB")


def test_a_plan_for_one_failure() -> None:
    sizing = plan(EXAMPLE)
    assert (sizing.copies, sizing.min_isr, sizing.controllers, sizing.brokers) == (3, 2, 3, 3)
    # A week of 30 MB/s, three copies on three brokers, 70 % full.
    assert sizing.disk_bytes == pytest.approx(30e6 * 604_800 * 1.01 / FULL, rel=0.001)
    assert sizing.network_in == pytest.approx(30e6 * 3 / 2 / 0.5)
    assert plan(replace(EXAMPLE, outlive=0)).copies == 1
    assert plan(replace(EXAMPLE, outlive=2)).copies == 5


@given(DEMANDS)
def test_a_plan_tolerates_the_given_failures(demand: Demand) -> None:
    sizing = plan(demand)
    assert sizing.copies - demand.outlive >= sizing.min_isr > demand.outlive
    assert sizing.brokers >= sizing.copies and sizing.brokers - demand.outlive >= 1
    assert sizing.controllers // 2 >= demand.outlive
    assert sizing.partitions % sizing.brokers == 0
    assert sizing.partitions * demand.consumer_rate >= demand.events_s * 0.999
    assert sizing.partitions * PARTITION_BYTES_S >= demand.bytes_s * 0.999
    assert sizing.buffer_bytes >= sizing.in_flight_bytes
    # The brokers that are left have the cores, and room for every copy.
    assert sizing.cores <= (sizing.brokers - demand.outlive) or sizing.brokers == sizing.copies
    assert all(line.amount and line.why and line.sure for line in lines(demand, sizing))
    assert all(warnings(demand, sizing))


@given(DEMANDS, st.floats(1.1, 5))
def test_more_events_never_take_less(demand: Demand, factor: float) -> None:
    few, many = plan(demand), plan(replace(demand, rate=demand.rate * factor))
    assert many.brokers >= few.brokers and many.cores >= few.cores
    assert many.in_flight_bytes > few.in_flight_bytes


@given(st.integers(1, 4_000_000), st.integers(2, 10))
def test_larger_records_are_fewer_for_a_core(size: int, factor: int) -> None:
    assert figures.records_per_core(size * factor) <= figures.records_per_core(size)


def test_sizes_that_were_measured_have_their_figures() -> None:
    for size, figure in figures.REPLICATED.items():
        assert figures.records_per_core(size) == pytest.approx(figure.value / figures.CORES)
        assert figures.nearest(size) is figure
    assert not figures.is_measured(1) and figures.is_measured(2_000)


@pytest.mark.parametrize("figure", [*figures.FIGURES, figures.CONSUME_CPU_S_PER_GB], ids=lambda figure: figure.row)
def test_figures_are_on_the_pages_that_they_cite(figure: figures.Figure) -> None:
    """The pages are measured again now and then: a figure is wrong where the page says half as much, or twice."""
    (row,) = [line for line in (ROOT / figure.page).read_text().splitlines() if line.startswith(f"| {figure.row} |")]
    cells = [float(text.replace(",", "")) for text in re.findall(r"(?<=\| )[\d,.]+(?= \|)", row)]
    assert any(figure.value / 2 <= cell <= figure.value * 2 for cell in cells), row


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        (replace(EXAMPLE, latency_ms=5), "less than was measured"),
        (replace(EXAMPLE, size=10), "were not measured"),
        (replace(EXAMPLE, outlive=0), "nothing is outlived"),
        (replace(EXAMPLE, consumer_rate=0.1), "replicas a broker"),
        (EXAMPLE, "a new broker copies for"),
    ],
)
def test_a_plan_has_warnings(demand: Demand, said: str) -> None:
    assert any(said in line for line in warnings(demand, plan(demand)))


def test_a_plan_that_was_measured_needs_no_warning() -> None:
    demand = Demand(size=1024, rate=1000, retention_s=3600)
    assert not list(warnings(demand, plan(demand)))
    assert {line.sure for line in lines(demand, plan(demand))} == {"arithmetic", "scaled", "rule", "measured"}


@pytest.mark.parametrize("profile", WHAT)
@pytest.mark.parametrize("size", [100, 10_000, 5_000_000])
def test_a_node_honours_every_setting_of_a_profile(profile: Profile, size: int) -> None:
    demand = replace(EXAMPLE, size=size, rate=100)
    broker = settings(profile, demand, plan(demand))["broker.properties"]
    resolved = resolve(zero_config(broker), Sources({}, lambda path: ""), honoured=honoured_settings())
    assert resolved.warnings == ()


@given(DEMANDS, st.sampled_from(["resilience", "throughput", "payload"]))
def test_limits_of_settings_hold(demand: Demand, profile: Profile) -> None:
    files = settings(profile, demand, plan(demand))
    producer, consumer = files["producer.properties"], files["consumer.properties"]
    assert int(producer["buffer.memory"]) >= int(producer["batch.size"])
    if profile == "payload":
        limit = int(files["broker.properties"]["message.max.bytes"])
        assert demand.size < limit <= int(consumer["max.partition.fetch.bytes"]) + 100_000
        assert int(producer["max.request.size"]) == limit
        assert limit <= int(files["broker.properties"]["replica.fetch.max.bytes"])


def test_names_of_librdkafka() -> None:
    java = {"buffer.memory": "2048", "max.request.size": "9", "fetch.max.wait.ms": "7", "acks": "all"}
    assert of_librdkafka(java) == {
        "queue.buffering.max.kbytes": "2",
        "message.max.bytes": "9",
        "fetch.wait.max.ms": "7",
        "acks": "all",
    }


@pytest.mark.parametrize(
    ("count", "text"), [(5, "5 bytes"), (3e6, "3.0 MB"), (26.2e12, "26.2 TB"), (5e16, "50,000.0 TB")]
)
def test_bytes_are_shown_by_thousands(count: float, text: str) -> None:
    assert shown_bytes(count) == text
