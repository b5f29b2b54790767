"""Producers and a reader of a topic that go on whatever happens to the cluster."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

# Beyond any failure of these scenarios: a record is acknowledged in the end, or the cluster did not come back.
DELIVERY_TIMEOUT_MS = 180_000
RECORDS_PER_S = 400
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000}


class Writer(threading.Thread):
    """An idempotent producer, acks=all: values `name:number`, the numbers of each partition rising."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name=f"writer {name}", daemon=True)
        self.label = name
        self.sent: dict[int, int] = defaultdict(int)
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.refused: list[str] = []
        self.unanswered = 0
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()
        self._topic = topic
        self._partitions = partitions
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": 10_000,
                **QUIET,
            }
        )

    def run(self) -> None:
        turn = 0
        while not self._ended.is_set():
            partition = turn % self._partitions
            value = f"{self.label}:{self.sent[partition]}"
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
                continue
            self.sent[partition] += 1
            turn += 1
            self._producer.poll(1 / RECORDS_PER_S)
        self.unanswered = self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def end(self) -> None:
        """Send nothing more, and wait until everything is answered."""
        self._ended.set()
        self.join()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now_s = time.monotonic()
        if error is not None:
            self.refused.append(str(error))
            return
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
        self._last_s = now_s
        value = message.value()
        assert isinstance(value, bytes)
        self.acknowledged[message.partition() or 0].append(int(value.rpartition(b":")[2]))


class Reader(threading.Thread):
    """Reads each partition once, from the beginning; keeps (offset, value) as they came."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="reader", daemon=True)
        self.seen: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.errors: list[str] = []
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{topic}",
                "enable.auto.commit": False,
                # An offset that was there and is gone must be seen, not stepped over.
                "auto.offset.reset": "error",
                "check.crcs": True,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self._ended.is_set():
            self._process(self._consumer.consume(500, 0.2))
        self._consumer.close()

    def _process(self, messages: list[Message]) -> None:
        for message in messages:
            error: Any = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.errors.append(str(error))
                continue
            offset, value = message.offset(), message.value()
            assert offset is not None and isinstance(value, bytes)
            self.seen[message.partition() or 0].append((offset, value))

    def read_to(self, ends: dict[int, int], timeout_s: float) -> None:
        """Wait until everything below these offsets (exclusive) has come. Raises AssertionError."""
        deadline = time.monotonic() + timeout_s
        for number, end in ends.items():
            while end and (not self.seen[number] or self.seen[number][-1][0] < end - 1):
                assert time.monotonic() < deadline, f"partition {number} is not read to {end}: {self.errors[-3:]}"
                time.sleep(0.05)

    def end(self) -> None:
        """Read nothing more."""
        self._ended.set()
        self.join()
