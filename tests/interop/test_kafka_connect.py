"""A worker of Kafka Connect over our broker: its three compacted topics, its own kind of group, a source and a sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import start_broker
from tests.interop.connect_worker import Worker
from tests.interop.packages import MissingError
from tests.support.clients.confluent import admin, await_ends, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, KafkaUnavailableError
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

LINES = 1000


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Node | ApacheKafka]:
    with start_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def worker(tmp_path: Path, own_broker: Node | ApacheKafka) -> Iterator[Worker]:
    try:
        running = Worker(tmp_path, own_broker.bootstrap)
    except (KafkaUnavailableError, MissingError) as error:
        pytest.skip(f"no Kafka Connect: {error}")
    yield running
    running.stop()


def test_a_source_is_exactly_once_over_kills_of_its_worker(
    own_broker: Node | ApacheKafka, worker: Worker, tmp_path: Path
) -> None:
    """The worker writes records and source offsets in one transaction (KIP-618), and fences its predecessor's tasks."""
    source = tmp_path / "in.txt"
    source.touch()
    eventually(worker.is_ready, "the worker answers")
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": "lines",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "batch.size": "50",
    }
    eventually(lambda: worker.create("source", config), "the source is made")

    def written() -> list[bytes | None]:
        if "lines" not in admin(own_broker.bootstrap).list_topics(timeout=PATIENCE_S).topics:
            return []
        read = read_all(own_broker.bootstrap, "lines", isolation_level="read_committed")
        return [message.value() for message in read]

    lines = [f"line {number}" for number in range(4 * LINES)]
    for first in range(0, len(lines), LINES):
        with source.open("a") as more:
            more.write("".join(f"{line}\n" for line in lines[first : first + LINES]))
        eventually(lambda first=first: len(written()) > first, "more lines arrive")
        worker.kill()
        worker.start()
    eventually(lambda: len(written()) >= len(lines), "all lines arrive")
    await_ends(own_broker.bootstrap, "lines")
    assert written() == [line.encode() for line in lines]


def test_lines_go_through_a_source_and_a_sink_also_over_a_kill(
    own_broker: Node | ApacheKafka, worker: Worker, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(2 * LINES)]
    source.write_text("".join(f"{line}\n" for line in lines[:LINES]))
    sink.touch()

    def arrived(count: int) -> bool:
        return len(set(sink.read_text().splitlines())) == count

    eventually(worker.is_ready, "the worker answers")
    package = "org.apache.kafka.connect.file"
    from_file = {"connector.class": f"{package}.FileStreamSourceConnector", "file": str(source), "topic": "lines"}
    to_file = {"connector.class": f"{package}.FileStreamSinkConnector", "file": str(sink), "topics": "lines"}
    eventually(lambda: worker.create("source", from_file), "the source is made")
    eventually(lambda: worker.create("sink", to_file), "the sink is made")
    eventually(lambda: arrived(LINES), "the first half arrives")
    own_broker.kill()
    own_broker.start()
    with source.open("a") as more:
        more.write("".join(f"{line}\n" for line in lines[LINES:]))
    eventually(lambda: arrived(2 * LINES), "the second half arrives")
    assert set(sink.read_text().splitlines()) == set(lines)
    for name in ("source", "sink"):
        assert [task["state"] for task in worker.call(f"/connectors/{name}/status")["tasks"]] == ["RUNNING"]
