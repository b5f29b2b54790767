"""Helpers of several examples: create a topic, write to it without gaps or in transactions, and read one whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

TIMEOUT_S = 30.0
SETTLED_S = 120.0  # twice as long as a transaction may be open by default
REACHED_S = 6.0  # a broker that has not answered by then is not there


def create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Make a topic with as many replicas as the cluster gives by default; one that exists stays as it is."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    client.list_topics(timeout=REACHED_S)
    wished = NewTopic(name, partitions, config=dict(config or {}))
    try:
        client.create_topics([wished], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def refuse_failure(error: KafkaError | None, _: object) -> None:
    """For `on_delivery`: end where a record is not stored. Later ones may be: going on would hide the gap."""
    if error is not None:
        raise KafkaException(error)


def transactional_producer(bootstrap: str, transactional_id: str) -> Producer:
    """A producer that may begin a transaction. Those that an earlier one of this id left have ended."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            # Otherwise send_offsets_to_transaction may hang once no broker was reachable (librdkafka #5511).
            "metadata.recovery.strategy": "none",
            "log_level": 2,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def commit_with_offsets(producer: Producer, offsets: list[TopicPartition], consumer: Consumer) -> None:
    """Commit the transaction, and in it that the consumer's group has got so far. Waits for brokers that are away.

    Raises:
        KafkaException: the transaction is to be aborted, or another producer has this one's id.
    """
    group = consumer.consumer_group_metadata()
    _retry(lambda: producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S))
    _retry(lambda: producer.commit_transaction(TIMEOUT_S))


def _retry(call: Callable[[], None]) -> None:
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            time.sleep(0.05)  # some errors come at once


def reader(bootstrap: str) -> Consumer:
    """A consumer of committed records without a group, which knows where partitions end. Its owner assigns."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "no-group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",  # a position that is lost must not become the end in silence
            "log_level": 2,  # what goes wrong is raised; the client would tell each try beside it
        }
    )


def from_now_on(bootstrap: str, topic: str) -> Consumer:
    """A reader that stands at the end of every partition: what is written once this has returned is not missed."""
    consumer = reader(bootstrap)
    waiting = set(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in waiting])
    while waiting:
        message = consumer.poll(1)
        if message is not None:
            waiting.discard(message.partition() or 0)
    return consumer


def records(
    bootstrap: str, topic: str, partition: int | None = None, until: int = 0, *, settled: bool = False
) -> Iterator[Message]:
    """The committed records of a topic, or of one of its partitions, from the start to the end as it is when met.

    Args:
        until: an offset that is known to be reached. A leader that is new may show its end a moment too early.
        settled: transactions that are open now are waited for, up to SETTLED_S. A commit is answered before all
            partitions know of it: who counts what a query has written, right behind its end, may miss the last of it.
    """
    if settled:
        settle(bootstrap, topic)
    consumer = reader(bootstrap)
    try:
        found = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        waiting = set(found) if partition is None else {partition}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in waiting])
        while waiting:
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) < until:
                        continue
                    waiting.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def settle(bootstrap: str, topic: str) -> None:
    """Wait until transactions that are open in a topic now have ended, as far as its readers know.

    Raises:
        TimeoutError: one is still open after SETTLED_S.
    """
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    numbers = client.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    deadline = time.monotonic() + SETTLED_S
    ends = _ends(client, topic, numbers, IsolationLevel.READ_UNCOMMITTED)
    while any(at < ends[number] for number, at in _ends(client, topic, numbers, IsolationLevel.READ_COMMITTED).items()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"a transaction in topic {topic} is still open after {SETTLED_S:g} s")
        time.sleep(0.05)


def _ends(client: AdminClient, topic: str, numbers: Collection[int], level: IsolationLevel) -> dict[int, int]:
    """The offset behind the last record of each partition that a reader of this level sees."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
    found = client.list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT_S)
    return {partition.partition: future.result(TIMEOUT_S).offset for partition, future in found.items()}
