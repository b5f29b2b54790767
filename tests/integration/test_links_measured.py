"""The lag of a link and its reason, by the command and the metrics; and the limit of bytes that it fetches a second."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.clients.links import describe, linked_node, rows_of
from tests.support.nodes.node import Node
from tests.support.nodes.scrapes import ANY_PORT, metrics_address, scrape
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "orders"
Records = list[tuple[bytes | None, bytes | None]]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "source") as node:
        yield node


@pytest.fixture
def here(tmp_path: Path, source: Node) -> Iterator[Node]:
    with linked_node(tmp_path / "here", source, ANY_PORT) as node:
        yield node


def of_mirror(node: Node, name: str, **labels: str) -> list[float]:
    """The values of a metric with these labels."""
    found = scrape(metrics_address(node)).get(name, {})
    return [value for at, value in found.items() if set(labels.items()) <= at]


def records(count: int) -> Records:
    return [(b"k", f"{number}".encode() * 10) for number in range(count)]


def produce_to(bootstrap: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records(count):
        producer.produce(TOPIC, value, key, partition)
    assert producer.flush(PATIENCE_S) == 0


def test_lag_bytes_and_an_unreachable_source_are_shown(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, TOPIC)
    produce_all(source.bootstrap, TOPIC, records(100))
    odradek(here.bootstrap, "links", "mirror", "west", TOPIC)
    eventually(lambda: [(row["end"], row["state"]) for row in rows_of(here.bootstrap, TOPIC)] == [(100, "active")])
    (row,) = rows_of(here.bootstrap, TOPIC)
    files = sum(path.stat().st_size for path in (here.data_dir / f"{TOPIC}-0").glob("*.log"))
    assert (row["state"], row["source_end"], row["lag"], row["lag_seconds"]) == ("active", 100, 0, 0)
    assert row["bytes"] == files > 1000
    assert of_mirror(here, "odradek_link_bytes_total", link="west", topic=TOPIC, partition="0") == [files]
    assert of_mirror(here, "odradek_link_lag_records", link="west") == [0]
    assert of_mirror(here, "odradek_link_state", state="active", reason="") == [1]

    odradek(here.bootstrap, "links", "pause", "west", TOPIC)
    produce_all(source.bootstrap, TOPIC, records(7))
    eventually(lambda: [row["lag"] for row in rows_of(here.bootstrap, TOPIC)] == [7], "what is paused lags")
    eventually(lambda: of_mirror(here, "odradek_link_lag_seconds")[0] > 0.5)
    assert of_mirror(here, "odradek_link_lag_records") == [7]
    assert of_mirror(here, "odradek_link_state", state="paused") == [1]
    odradek(here.bootstrap, "links", "resume", "west", TOPIC)
    eventually(lambda: [row["lag"] for row in rows_of(here.bootstrap, TOPIC)] == [0], "nothing lags")

    before_ms = time.time() * 1000
    source.kill()
    eventually(lambda: describe(here.bootstrap)["why"] == "unreachable", lambda: describe(here.bootstrap))
    found = describe(here.bootstrap)
    assert before_ms - 1000 < found["since_ms"] <= time.time() * 1000
    assert found["reason"]
    (row,) = found["partitions"]
    assert (row["state"], row["why"], row["lag"]) == ("waiting", "unreachable", 0)
    assert row["lag_seconds"] > 0
    assert of_mirror(here, "odradek_link_down_seconds", link="west", reason="unreachable")[0] > 0
    assert "UTC" in odradek(here.bootstrap, "links", "describe", "west").out
    source.start()
    eventually(lambda: describe(here.bootstrap)["why"] == "" == rows_of(here.bootstrap, TOPIC)[0]["why"])
    eventually(lambda: of_mirror(here, "odradek_link_down_seconds", link="west", reason="") == [0], "it is up")


def test_a_topic_that_is_another_one_now_says_so(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, TOPIC)
    odradek(here.bootstrap, "links", "mirror", "west", TOPIC)
    eventually(lambda: [row["state"] for row in rows_of(here.bootstrap, TOPIC)] == ["active"])
    odradek(source.bootstrap, "topics", "delete", "--topic", TOPIC)
    create_topic(source.bootstrap, TOPIC)
    eventually(lambda: [row["why"] for row in rows_of(here.bootstrap, TOPIC)] == ["recreated"])
    (row,) = rows_of(here.bootstrap, TOPIC)
    assert "is another topic at the source now" in row["reason"]
    assert row["state"] == "stopped"
    assert of_mirror(here, "odradek_link_state", topic=TOPIC, state="stopped", reason="recreated") == [1]
    assert describe(here.bootstrap)["why"] == ""


def test_a_link_fetches_no_more_than_it_may(source: Node, here: Node) -> None:
    limit, size = 200_000, 600_000
    create_topic(source.bootstrap, TOPIC)
    # Each value is a batch of its own, so that no batch is larger than the limit.
    values: Records = [(None, os.urandom(50_000)) for _ in range(size // 50_000)]
    produce_all(source.bootstrap, TOPIC, values, batch_num_messages=1)
    odradek(here.bootstrap, "links", "alter", "west", "--set", f"io.max.bytes.per.second={limit}")
    assert describe(here.bootstrap)["settings"] == {"io.max.bytes.per.second": str(limit)}
    begun = time.monotonic()
    odradek(here.bootstrap, "links", "mirror", "west", TOPIC)
    eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, TOPIC)] == [len(values)])
    # A second's worth may have been saved up, and the last fetch is paid for afterwards.
    assert time.monotonic() - begun > (size - 2 * limit) / limit
    refused = odradek(here.bootstrap, "links", "alter", "west", "--set", "io.max.bytes.per.second=-1", code=None)
    assert refused.code and "0 is no limit" in refused.err
    odradek(here.bootstrap, "links", "alter", "west", "--unset", "io.max.bytes.per.second")
    assert describe(here.bootstrap)["settings"] == {}


def test_any_broker_answers_for_the_partitions_of_all(tmp_path: Path, source: Node) -> None:
    create_topic(source.bootstrap, TOPIC, 4)
    for number in range(4):
        produce_to(source.bootstrap, number, 10 + number)
    with ProcessCluster(tmp_path / "here", brokers=2) as here:
        odradek(here.bootstrap_servers, "links", "create", "west", "--source", source.bootstrap)
        odradek(here.bootstrap_servers, "links", "mirror", "west", TOPIC)
        for address in here.bootstrap_servers.split(","):
            eventually(lambda at=address: [row["lag"] for row in rows_of(at, TOPIC)] == [0] * 4)
            assert [row["end"] for row in rows_of(address, TOPIC)] == [10, 11, 12, 13]


def test_quiet_partitions_cost_a_link_nothing_each_time(tmp_path: Path) -> None:
    """A request names what has changed: with many partitions its size would be theirs, twice a second."""
    with Node(tmp_path / "source", ANY_PORT) as source, Node(tmp_path / "here") as here:
        create_topic(source.bootstrap, TOPIC, 100)
        odradek(here.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        odradek(here.bootstrap, "links", "mirror", "west", TOPIC)
        eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, TOPIC)] == [0] * 100)
        eventually(lambda: of_mirror(source, "odradek_fetch_sessions")[0] >= 1)
        produce_to(source.bootstrap, 57, 10)
        eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, TOPIC)][57] == 10)
        odradek(here.bootstrap, "links", "pause", "west", TOPIC)
        produce_to(source.bootstrap, 58, 5)
        odradek(here.bootstrap, "links", "resume", "west", TOPIC)
        eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, TOPIC)][57:59] == [10, 5])
        source.stop()
        source.start()
        produce_to(source.bootstrap, 59, 3)
        eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, TOPIC)][57:60] == [10, 5, 3])
