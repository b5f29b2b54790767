"""Clients of scenes that are killed: each runs in a process of its own, prints a line when it has come far enough, and
waits there until it is killed.

    python -m odradek.cli.lab.clients CLIENT HOST:PORT[,…]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

# For an event that is about to come; a busy machine takes longer.
PATIENCE_S = 60.0
# How soon the coordinator counts a dead consumer out: the least that brokers allow.
SESSION_MS = 6_000
# Records of each transaction of the copier, and after how many copies the first one hangs amid a transaction.
BATCH, HANGS_AFTER = 5, 7


def _consumer(bootstrap: str, group: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "log_level": 0,
        }
    )


def _producer(bootstrap: str, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    return producer


def _say_and_hang(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    while True:
        time.sleep(PATIENCE_S)


def read_two(bootstrap: str) -> None:
    """Read two records, commit behind the first one, and hang."""
    consumer = _consumer(bootstrap, "committing")
    consumer.subscribe(["committed"])
    messages: list[Any] = []
    while len(messages) < 2:
        messages += consumer.consume(2 - len(messages), 1.0)
    consumer.commit(message=messages[0], asynchronous=False)
    _say_and_hang(", ".join(message.value().decode() for message in messages))


def write_half(bootstrap: str) -> None:
    """Write a record of a transaction, and hang before its end."""
    producer = _producer(bootstrap, "payer")
    producer.begin_transaction()
    producer.produce("payments", "half")
    producer.flush(PATIENCE_S)
    _say_and_hang("written")


def copy(bootstrap: str) -> None:
    """Copy `numbers` to `results`, the offsets in the same transactions; the first copier hangs amid one."""
    from confluent_kafka import TopicPartition

    producer = _producer(bootstrap, "copier")
    consumer = _consumer(bootstrap, "copying")
    (begun,) = consumer.committed([TopicPartition("numbers", 0)], PATIENCE_S)
    end = consumer.get_watermark_offsets(TopicPartition("numbers", 0), PATIENCE_S)[1]
    is_first = begun.offset < 0
    at = max(0, begun.offset)
    consumer.assign([TopicPartition("numbers", 0, at)])
    while at < end:
        producer.begin_transaction()
        for message in _next(consumer, min(BATCH, end - at)):
            producer.produce("results", message.value())
            at = message.offset() + 1
            if is_first and at == HANGS_AFTER:
                producer.flush(PATIENCE_S)
                _say_and_hang("hangs")
        offsets = [TopicPartition("numbers", 0, at)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
    _say_and_hang("done")


def _next(consumer: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        messages += consumer.consume(count - len(messages), 1.0)
    return messages


CLIENTS: dict[str, Callable[[str], None]] = {"read-two": read_two, "write-half": write_half, "copy": copy}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](sys.argv[2])
