"""Short forms over confluent-kafka that several tests share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

READ_COMMITTED, READ_UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
BECOMING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, *, copies: int = 1, **configs: object) -> None:
    """Create a topic and wait until the broker that answers knows it; raises KafkaException where it is refused.

    Apache Kafka answers when its controller has the topic: a request to its broker right after may find none.
    """
    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    client = admin(bootstrap)  # a client that is collected before it is answered gives up
    futures = client.create_topics([NewTopic(topic, partitions, copies, config=settings)], operation_timeout=30)
    futures[topic].result(timeout=60)
    while len(client.list_topics(topic, timeout=60).topics[topic].partitions) < partitions:
        time.sleep(0.01)


@dataclass
class Acknowledged:
    """The acknowledged records: value → (partition, offset); and the errors of the others."""

    values: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        value = message.value()
        assert isinstance(value, bytes)
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self.values[value] = (partition, offset)


def produce_all(
    bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], **settings: Any
) -> list[Message]:
    """Produce key-value pairs and return their delivered messages, in delivery order; every one must succeed."""
    delivered: list[Message] = []
    errors: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            errors.append(str(error))

    config = {"bootstrap.servers": bootstrap, "linger.ms": 5} | {k.replace("_", "."): v for k, v in settings.items()}
    producer = Producer(config)
    for key, value in records:
        producer.produce(topic, key=key, value=value, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(120) == 0, "not all records were delivered in 120 s"
    assert not errors, errors[:3]
    return delivered


def read_all(
    bootstrap: str, topic: str, partitions: int = 1, *, timeout_s: float = 120.0, **settings: Any
) -> list[Message]:
    """Every record of a topic from the log start to the end as it is now, by assignment, without a group."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader-without-a-group",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 12_000_000,
        "fetch.max.bytes": 52_428_800,
    } | {k.replace("_", "."): v for k, v in settings.items()}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages: list[Message] = []
    at_end: set[int | None] = set()
    deadline = time.monotonic() + timeout_s
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"read {len(messages)} records in {timeout_s} s, not to the end"
            for message in consumer.consume(1000, timeout=1.0):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                else:
                    raise AssertionError(str(error))
    finally:
        consumer.close()
    return messages


def commit_alone(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets by (topic, partition) for a group without members.

    A coordinator that has just been found may still become one, and the client passes its refusal on.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                consumer.commit(offsets=wanted, asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in BECOMING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def read_committed(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """Every committed record of a topic, once the transactions that are in it now have ended; see `await_ends`."""
    await_ends(bootstrap, topic, partitions)
    return read_all(bootstrap, topic, partitions, isolation_level="read_committed")


def await_ends(bootstrap: str, topic: str, partitions: int = 1, *, timeout_s: float = 150.0) -> None:
    """Wait until readers of committed records see all that a topic has now.

    EndTxn is answered before the ends of the transaction are in its partitions. So who reads right behind it may find
    the log to end before it. Not for a topic in which a transaction is left open; one that a dead producer leaves lasts
    a minute by default.
    """
    client = admin(bootstrap)
    deadline = time.monotonic() + timeout_s
    ends = _ends(client, topic, partitions, READ_UNCOMMITTED)
    while any(at < end for at, end in zip(_ends(client, topic, partitions, READ_COMMITTED), ends, strict=True)):
        assert time.monotonic() < deadline, f"a transaction in {topic} is still open after {timeout_s} s"
        time.sleep(0.01)


def _ends(client: AdminClient, topic: str, partitions: int, level: IsolationLevel) -> list[int]:
    """The offset behind each partition's last record that a reader of this level sees."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    found = client.list_offsets(asked, isolation_level=level, request_timeout=30)
    return [found[partition].result(30).offset for partition in asked]
