"""Groups and transactions of clients, measured through confluent-kafka: commits, transactions, copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

VALUE = b"v" * 100
PATIENCE_S = 60.0
AUTO_COMMIT_MS = 10
COPY_PORTION = 1000


def fill(bootstrap: str, topic: str, count: int) -> None:
    """`count` records into partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(PATIENCE_S) == 0


def _consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return Consumer(
        config | {name if name == "on_commit" else name.replace("_", "."): value for name, value in settings.items()}
    )


def _first(consumer: Consumer, topic: str) -> Message:
    """Assign partition 0 and wait for its first record; the records after it are there already."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message
    raise AssertionError(f"nothing of {topic} was read in {PATIENCE_S:g} s")


def _read_for(consumer: Consumer, seconds: float, each: Callable[[Message], None]) -> float:
    """Call `each` for every record until time or the records run out; returns the seconds that it took."""
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        messages = consumer.consume(100, 0.2)
        if not messages:
            break
        for message in messages:
            assert message.error() is None, message.error()
            each(message)
            if time.perf_counter() - began >= seconds:
                break
    return max(elapsed, time.perf_counter() - began)


def commits_auto(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Commits a second by themselves, every 10 ms; acknowledged ones are counted."""
    done = 0

    def committed(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        nonlocal done
        done += error is None

    consumer = _consumer(
        bootstrap, group, enable_auto_commit=True, auto_commit_interval_ms=AUTO_COMMIT_MS, on_commit=committed
    )
    _first(consumer, topic)
    before = done
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        consumer.poll(0.005)  # slowly, so that there is something to commit each time
        time.sleep(0.002)
    rate = (done - before) / (time.perf_counter() - began)
    consumer.close()
    return rate


def commits_async(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Commits a second for each record, without waiting; acknowledged ones are counted."""
    done = sent = 0

    def committed(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        nonlocal done
        done += error is None

    consumer = _consumer(bootstrap, group, on_commit=committed)
    _first(consumer, topic)
    began = time.perf_counter()

    def commit(message: Message) -> None:
        nonlocal sent
        consumer.commit(message=message, asynchronous=True)
        sent += 1
        while sent - done > 200:
            consumer.poll(0)

    _read_for(consumer, seconds, commit)
    deadline = time.monotonic() + PATIENCE_S
    while done < sent and time.monotonic() < deadline:
        consumer.poll(0.001)
    rate = done / (time.perf_counter() - began)
    consumer.close()
    return rate


def commits_sync(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Commits a second, each waited for, one for each record."""
    return _commits_sync_every(bootstrap, topic, group, seconds, 1)


def commits_sync_1000(bootstrap: str, topic: str, group: str, seconds: float) -> float:
    """Commits a second, each waited for, one for every 1,000 records."""
    return _commits_sync_every(bootstrap, topic, group, seconds, 1000)


def _commits_sync_every(bootstrap: str, topic: str, group: str, seconds: float, every: int) -> float:
    consumer = _consumer(bootstrap, group)
    consumer.commit(message=_first(consumer, topic), asynchronous=False)
    read = done = 0

    def commit(message: Message) -> None:
        nonlocal read, done
        read += 1
        if read % every == 0:
            consumer.commit(message=message, asynchronous=False)
            done += 1

    took_s = _read_for(consumer, seconds, commit)
    consumer.close()
    return done / took_s


def transactions(bootstrap: str, topic: str, name: str, seconds: float, records: int) -> float:
    """Transactions a second of so many records, one after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)

    def one() -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(PATIENCE_S)

    one()
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        one()
        count += 1
    return count / elapsed


def copy_exactly_once(bootstrap: str, source: str, target: str, name: str, seconds: float) -> float:
    """Records a second, consumed and produced again in transactions of up to 1,000 with their offsets."""
    consumer = _consumer(bootstrap, name, isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(PATIENCE_S)
    last = _first(consumer, source)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        messages = consumer.consume(COPY_PORTION, 0.05)
        if not messages:
            break
        producer.begin_transaction()
        for last in messages:
            assert last.error() is None, last.error()
            producer.produce(target, last.value(), partition=0)
        offsets = [TopicPartition(source, 0, (last.offset() or 0) + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        count += len(messages)
    consumer.close()
    return count / max(elapsed, time.perf_counter() - began if not count else elapsed)
