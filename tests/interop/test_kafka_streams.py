"""A program on Kafka Streams against our broker: internal topics, its own assignor, changelogs, a repartition topic."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.interop.maven import kafka_artifact
from tests.interop.packages import MissingError
from tests.support.clients.confluent import admin, create_topic, produce_all, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, KafkaUnavailableError, find_java
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

PLACES = 50
VISITS = 20_000
TIMEOUT_S = 300.0
SOURCE = Path(__file__).parent / "java" / "CountVisits.java"


def counted(bootstrap: str) -> dict[bytes, int]:
    """The last count of each place."""
    counts: dict[bytes, int] = {}
    for message in read_all(bootstrap, "streams-counts", 4):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes) and isinstance(value, bytes)
        counts[key] = int(value)
    return counts


def test_streams_count_everything_once(broker: Node | ApacheKafka, tmp_path: Path) -> None:
    try:
        java, libraries = find_java(), kafka_artifact("kafka-streams")
    except (KafkaUnavailableError, MissingError) as error:
        pytest.skip(f"no Kafka Streams: {error}")
    create_topic(broker.bootstrap, "streams-visits", 4)
    create_topic(broker.bootstrap, "streams-counts", 4)
    create_topic(broker.bootstrap, "streams-places", 4, cleanup_policy="compact")
    places = [f"place{number}" for number in range(PLACES)]
    # Partitioned as the Java client does, since Streams joins partition by partition.
    produce_all(
        broker.bootstrap, "streams-places", [(place.encode(), b"known") for place in places], partitioner="murmur2"
    )
    produce_all(
        broker.bootstrap, "streams-visits", [(None, f"{places[n % PLACES]}/{n}".encode()) for n in range(VISITS)]
    )
    command = [str(java), "-Xmx400m", "-cp", f"{libraries}/*", str(SOURCE), broker.bootstrap, str(tmp_path / "state")]
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    try:
        wanted = {place.encode(): VISITS // PLACES for place in places}
        deadline = time.monotonic() + TIMEOUT_S
        while (counts := counted(broker.bootstrap)) != wanted:
            assert program.poll() is None, program.stdout and program.stdout.read()[-3000:]
            assert time.monotonic() < deadline, f"{sum(counts.values())} of {VISITS} were counted in {TIMEOUT_S} s"
            time.sleep(0.5)
        printed, _ = program.communicate("\n", timeout=60)
    finally:
        program.kill()
        program.wait()
    assert "ended as NOT_RUNNING" in printed
    made = {name for name in admin_topics(broker.bootstrap) if name.startswith("count-visits-")}
    assert {name.rsplit("-", 1)[1] for name in made} == {"changelog", "repartition"}


def admin_topics(bootstrap: str) -> list[str]:
    client = admin(bootstrap)
    return list(client.list_topics(timeout=30).topics)
