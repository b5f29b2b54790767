"""One properties file and one data directory, under Apache Kafka, under us, and under Apache Kafka again.

Each reads what the other wrote: records in every codec, topics with their settings, committed offsets.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource

from tests.support.clients.confluent import admin, commit_alone, create_topic, produce_all, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka

pytestmark = pytest.mark.timeout(600)
TOPIC, GROUP = "exchanged", "readers"
LOADING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def values(who: str) -> list[bytes]:
    return [f"{who}-{codec}-{number}".encode() for codec in CODECS for number in range(20)]


def write(bootstrap: str, who: str) -> None:
    for codec in CODECS:
        mine = [value for value in values(who) if f"-{codec}-".encode() in value]
        produce_all(
            bootstrap, TOPIC, [(b"k", value) for value in mine], compression_type=codec, enable_idempotence=True
        )


def commit(bootstrap: str, offset: int) -> None:
    commit_alone(bootstrap, GROUP, {(TOPIC, 0): offset})


def committed(bootstrap: str, group: str = GROUP, topic: str = TOPIC) -> int:
    """A group's committed offset of partition 0; waits while its coordinator, which has just begun, reads its log."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    deadline = time.monotonic() + 120
    try:
        while True:
            try:
                (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
                return int(found.offset)
            except KafkaException as error:
                assert error.args[0].code() in LOADING and time.monotonic() < deadline, error
            time.sleep(0.1)
    finally:
        consumer.close()


def retention(bootstrap: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    client = admin(bootstrap)  # a client that is collected before it is answered gives up
    entries = client.describe_configs([resource])[resource].result(timeout=30)
    return str(entries["retention.ms"].value)


class Ours:
    """Our node over Apache Kafka's properties file."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self.output = kafka.directory / "ours.log"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "odradek", "broker", "--config", str(self._kafka.properties)]
        with self.output.open("ab") as output:
            before = output.tell()  # what an earlier start has said
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while b" ready " not in self.output.read_bytes()[before:]:
            assert self._process.poll() is None and time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """Kill the process with SIGKILL; leaving the block then stops nothing more."""
        self._process.kill()
        self._process.wait()

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(timeout=120) == 0, self.output.read_text()


@pytest.mark.parametrize("crash", [pytest.param(False, marks=pytest.mark.slow), True], ids=["clean stops", "kill -9"])
def test_each_reads_what_the_other_wrote(tmp_path: Path, crash: bool) -> None:
    require_kafka()
    kafka = ApacheKafka(tmp_path / "node")
    with kafka:
        create_topic(kafka.bootstrap, TOPIC, retention_ms=123_456_789_000)
        write(kafka.bootstrap, "kafka")
        commit(kafka.bootstrap, 7)
        if crash:
            kafka.kill()
    with Ours(kafka):
        assert [message.value() for message in read_all(kafka.bootstrap, TOPIC)] == values("kafka")
        assert committed(kafka.bootstrap) == 7
        assert retention(kafka.bootstrap) == "123456789000"
        write(kafka.bootstrap, "ours")
        commit(kafka.bootstrap, 150)
        create_topic(kafka.bootstrap, "made-by-us", 3)
    with kafka:
        found = [message.value() for message in read_all(kafka.bootstrap, TOPIC)]
        assert found == values("kafka") + values("ours")
        assert committed(kafka.bootstrap) == 150
        assert retention(kafka.bootstrap) == "123456789000"
        assert len(admin(kafka.bootstrap).list_topics(timeout=30).topics["made-by-us"].partitions) == 3
        produce_all(kafka.bootstrap, "made-by-us", [(None, b"last")])


@pytest.mark.slow  # test_java_controllers and the test above have its parts
@pytest.mark.parametrize("quorum", ["standalone", "static"])
def test_a_directory_that_we_formatted_starts_kafka(tmp_path: Path, quorum: str) -> None:
    require_kafka()
    kafka = ApacheKafka(tmp_path / "node")
    how = []
    if quorum == "standalone":
        voters = str(kafka.settings.pop("controller.quorum.voters"))
        kafka.settings["controller.quorum.bootstrap.servers"] = voters.partition("@")[2]
        how = ["--standalone"]
    kafka.write_properties()
    tool = [sys.executable, "-m", "odradek", "storage", "format", "-t", "bm90LWZvci1rYWZrYS0wMQ", "-c"]
    subprocess.run([*tool, str(kafka.properties), *how], check=True)
    with Ours(kafka):
        create_topic(kafka.bootstrap, TOPIC)
        write(kafka.bootstrap, "ours")
        commit(kafka.bootstrap, 42)
    with kafka:
        assert [message.value() for message in read_all(kafka.bootstrap, TOPIC)] == values("ours")
        assert committed(kafka.bootstrap) == 42
        write(kafka.bootstrap, "kafka")
    with Ours(kafka):
        assert [message.value() for message in read_all(kafka.bootstrap, TOPIC)] == values("ours") + values("kafka")
