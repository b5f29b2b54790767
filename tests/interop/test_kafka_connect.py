"""A worker of Kafka Connect over our broker: its three compacted topics, its own kind of group, a source and a sink."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.interop.brokers import start_broker
from tests.interop.maven import kafka_artifact
from tests.interop.packages import MissingError
from tests.support.clients.confluent import admin, await_ends, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, KafkaUnavailableError, find_java, kafka_libraries
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

LINES = 1000
CONFLICT = 409  # a rebalance is under way
WORKER = """bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
group.id=connect-cluster
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.topic=connect-offsets
config.storage.topic=connect-configs
status.storage.topic=connect-status
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=500
exactly.once.source.support=enabled
"""


class Worker:
    """One running worker and its REST interface."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        """
        Raises:
            KafkaUnavailableError, MissingError: there is no Java, or no way to fetch the jars.
        """
        jars = f"{kafka_artifact('connect-file')}/*:{kafka_libraries()}/*"
        self.port = free_port()
        self.output = folder / "connect.txt"
        properties = folder / "worker.properties"
        properties.write_text(WORKER.format(bootstrap=bootstrap, port=self.port))
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.command = [str(find_java()), "-Xmx400m", "-cp", jars, program, str(properties)]
        self.start()

    def start(self) -> None:
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def call(self, path: str, body: object = None) -> Any:
        """GET, or POST where there is a body; raises OSError while the worker is not ready."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def create(self, name: str, config: dict[str, str]) -> bool:
        """Make a connector; False while the worker is busy with the one before."""
        try:
            self.call("/connectors", {"name": name, "config": config})
        except HTTPError as error:
            if error.code != CONFLICT:
                raise
            return False
        return True

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()[-3000:]
        try:
            return isinstance(self.call("/connectors"), list)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


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
