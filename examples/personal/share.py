"""The part of the orders that another region may have: of customers who agreed, the listed fields.

python -m examples.personal.share HOST:PORT        bootstrap.servers of the region that has the orders

It may be killed at any time: what it writes, and how far it has read, are one transaction.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from examples.topics import commit_with_offsets, transactional_producer

ORDERS, SHARED = "orders", "orders.shared"
# A field that is not listed stays, also one that is added to the orders later.
FIELDS = ("id", "article", "cents")
BATCH = 200
POLL_S = 0.2


def shared(value: bytes) -> bytes | None:
    """The part of an order that another region may have; None if there is none."""
    order = json.loads(value)
    # Whatever is not the word of the customer is a no.
    if order.get("agreed") is not True:
        return None
    return json.dumps({name: order[name] for name in FIELDS}).encode()


def run(bootstrap: str) -> None:
    """Share orders until the process is ended."""
    producer = transactional_producer(bootstrap, SHARED)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": SHARED,
            "group.instance.id": SHARED,  # what is started again has its partitions at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([ORDERS])
    while True:
        messages = consumer.consume(BATCH, POLL_S)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        if messages:
            share(messages, consumer, producer)


def share(messages: list[Message], consumer: Consumer, producer: Producer) -> None:
    """Write what may be shared of some orders, in one transaction with the offsets behind them."""
    following: dict[int, int] = {}
    producer.begin_transaction()
    for message in messages:
        value = shared(message.value() or b"{}")
        if value is not None:
            # Without the key, which is the customer.
            producer.produce(SHARED, value, partition=message.partition() or 0)
        following[message.partition() or 0] = (message.offset() or 0) + 1
    offsets = [TopicPartition(ORDERS, partition, offset) for partition, offset in following.items()]
    commit_with_offsets(producer, offsets, consumer)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m examples.personal.share HOST:PORT")
    run(sys.argv[1])
