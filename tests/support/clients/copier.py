"""A copier for tests that kill it: `python -m tests.support.clients.copier BOOTSTRAP FROM TO NAME PROTOCOL`.

Over confluent-kafka: each portion goes out with its offsets in one transaction; some are aborted on purpose.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

PORTION = 200
ABORT_EVERY = 7


def copy(bootstrap: str, source: str, target: str, name: str, protocol: str) -> None:
    """Copy until something fails that only a new producer gets past; `protocol` is group.protocol.

    Raises:
        KafkaException.
    """
    reading = {
        "bootstrap.servers": bootstrap,
        "group.id": "copiers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "group.protocol": protocol,
    }
    if protocol == "classic":
        reading |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    writing = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": 10_000,
        # When the only broker restarts, librdkafka bootstraps again, loses the coordinator of a transaction's offsets,
        # and waits for it without end (librdkafka #5511).
        "metadata.recovery.strategy": "none",
    }
    consumer, producer = Consumer(reading), Producer(writing)
    try:
        producer.init_transactions(30)
        consumer.subscribe([source])
        count = 0
        while True:
            messages = [each for each in consumer.consume(PORTION, 0.5) if each.error() is None]
            if messages:
                count += 1
                _copy_portion(consumer, producer, target, messages, abort=count % ABORT_EVERY == 0)
    finally:
        consumer.close()


def _copy_portion(consumer: Consumer, producer: Producer, target: str, messages: list[Message], *, abort: bool) -> None:
    first: dict[tuple[str, int], int] = {}
    following: dict[tuple[str, int], int] = {}
    for message in messages:
        key = (message.topic() or "", message.partition() or 0)
        first.setdefault(key, message.offset() or 0)
        following[key] = (message.offset() or 0) + 1
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(target, key=message.key(), value=message.value(), partition=message.partition() or 0)
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in following.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 15)
        if abort:
            producer.flush(15)
            raise KafkaException(KafkaError(KafkaError._APPLICATION))
        while True:
            try:
                producer.commit_transaction(15)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
    except KafkaException as error:
        if error.args[0].fatal():
            raise
        producer.abort_transaction(15)
        for (topic, number), offset in first.items():
            consumer.seek(TopicPartition(topic, number, offset))


def main() -> None:
    while True:
        try:
            copy(*sys.argv[1:6])
        except KafkaException as error:
            print(f"starts again: {error}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
