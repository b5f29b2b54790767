"""KIP-320: a stock consumer keeps its position where the leader epoch of its partition changes without a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.node import Node
from tests.support.nodes.scrapes import ANY_PORT, metrics_address, scrape
from tests.support.waiting import eventually

TOPIC = "empty"


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "node", ANY_PORT) as node:
        yield node


def validations(node: Node) -> float:
    """The OffsetForLeaderEpoch requests since the start of the node."""
    series = scrape(metrics_address(node)).get("odradek_requests_total", {})
    return sum(count for labels, count in series.items() if ("api", "OffsetForLeaderEpoch") in labels)


def next_value(consumer: Consumer) -> bytes | None:
    """The value of the next record; None where there is none yet. Raises KafkaException: the position was lost."""
    message = consumer.poll(0.1)
    if message is None or ((error := message.error()) is not None and error.code() == KafkaError._PARTITION_EOF):
        return None
    if error is not None:
        raise KafkaException(error)
    return message.value()


def test_a_consumer_of_an_empty_partition_outlives_kills_of_its_node(observed: Node) -> None:
    create_topic(observed.bootstrap, TOPIC)
    settings = {
        "bootstrap.servers": observed.bootstrap,
        "group.id": "validating",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "reconnect.backoff.max.ms": 200,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        eventually(lambda: (message := consumer.poll(0.1)) is not None and message.error() is not None)
        for _ in range(2):
            observed.kill()
            observed.start()

            def has_validated() -> bool:
                assert next_value(consumer) is None
                return validations(observed) > 0

            eventually(has_validated)
        produce_all(observed.bootstrap, TOPIC, [(None, b"%d" % number) for number in range(10)])
        assert [eventually(lambda: next_value(consumer)) for _ in range(10)] == [b"%d" % number for number in range(10)]
    finally:
        consumer.close()
