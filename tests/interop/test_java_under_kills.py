"""Kafka's verifiable producer and consumer while the broker is killed again and again: nothing acknowledged is lost."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import start_broker
from tests.support.clients.confluent import create_topic, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, java_command, require_kafka
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "verified"
PARTITIONS = 3
MESSAGES = 30_000
MESSAGES_PER_S = 2000
KILLS = 4
SECONDS_BETWEEN_KILLS = 3.0


def start_tool(output: Path, name: str, bootstrap: str, *arguments: object) -> subprocess.Popen[bytes]:
    common = ("--bootstrap-server", bootstrap, "--topic", TOPIC)
    with output.open("wb") as out:
        command = java_command(f"org.apache.kafka.tools.{name}", [*common, *arguments])
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def events(output: Path, name: str) -> list[dict[str, Any]]:
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["name"] == name]


def consumed(output: Path) -> int:
    return sum(event["count"] for event in events(output, "records_consumed"))


def kill_and_start(broker: Node | ApacheKafka) -> None:
    for _ in range(KILLS):
        time.sleep(SECONDS_BETWEEN_KILLS)
        broker.kill()
        broker.start()


def test_acknowledged_records_are_consumed_once(tmp_path: Path) -> None:
    require_kafka()
    sent, seen = tmp_path / "producer.txt", tmp_path / "consumer.txt"
    with start_broker(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        producer = start_tool(
            sent, "VerifiableProducer", broker.bootstrap, "--max-messages", MESSAGES, "--throughput", MESSAGES_PER_S
        )
        consumer = start_tool(
            seen, "VerifiableConsumer", broker.bootstrap, "--group-id", "verified", "--reset-policy", "earliest"
        )
        try:
            kill_and_start(broker)
            assert producer.wait(200) == 0
            stored = Counter(message.value() for message in read_all(broker.bootstrap, TOPIC, PARTITIONS))
            deadline = time.monotonic() + 200
            while consumed(seen) < stored.total():
                assert time.monotonic() < deadline, f"{consumed(seen)} of {stored.total()} were consumed"
                time.sleep(0.2)
            consumer.terminate()
            consumer.wait(30)
        finally:
            for tool in (producer, consumer):
                tool.kill()
                tool.wait()
    acknowledged = [event["value"].encode() for event in events(sent, "producer_send_success")]
    assert len(acknowledged) > MESSAGES // 2
    assert [value for value in acknowledged if value not in stored] == [], "lost"
    assert [value for value, count in stored.items() if count > 1] == [], "stored twice"
