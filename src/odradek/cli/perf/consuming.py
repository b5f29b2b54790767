"""A thread that consumes partitions: up to their present ends, or the records of this run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from odradek.cli.perf.load import MARK, Counting, ReceivedNumbers

POLL_S = 0.1
BATCH = 1_000


class Reader(Counting):
    """One consumer of its own partitions."""

    def __init__(self, consumer: Any, offsets: Mapping[int, int], topic: str, *, run: int | None = None) -> None:
        """
        Args:
            offsets: the first offset to read, by partition.
            run: count and time only the records of this run.
        """
        from confluent_kafka import TopicPartition

        super().__init__()
        # Which records have come, by the thread that sent them.
        self.seen: dict[int, ReceivedNumbers] = {}
        self.positions = dict(offsets)
        self._consumer = consumer
        self._run = run
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def work(self, ends: Mapping[int, int] | None = None) -> None:
        """Consume up to the ends, or until stopped. An error ends it and is stored."""
        try:
            while not self.stopping.is_set() and not self._is_at(ends):
                # A batch is waited for until it is full, one record is not: so one, and what has come with it.
                message = self._consumer.poll(POLL_S)
                if message is not None:
                    self._process([message, *self._consumer.consume(BATCH, 0.0)])
        except Exception as error:
            self.failure = error

    def _is_at(self, ends: Mapping[int, int] | None) -> bool:
        return ends is not None and all(self.positions[partition] >= end for partition, end in ends.items())

    def _process(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        now_ns = time.monotonic_ns()
        with self.lock:
            for message in messages:
                if message.error() is None:
                    self._count(message, now_ns)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    # Behind the last record there may be offsets without any: markers of transactions among them.
                    self.positions[message.partition()] = max(self.positions[message.partition()], message.offset())
                elif not message.error().retriable():
                    raise KafkaException(message.error())

    def _count(self, message: Any, now_ns: int) -> None:
        value = message.value() or b""
        self.positions[message.partition()] = message.offset() + 1
        if self._run is not None:
            self._count_ours(value, now_ns)
            return
        self.window.read += 1
        self.window.read_bytes += len(value) + len(message.key() or b"")

    def _count_ours(self, value: bytes, now_ns: int) -> None:
        if len(value) < MARK.size:
            return
        run, thread, number, due_ns = MARK.unpack_from(value)
        if run != self._run:
            return
        self.seen.setdefault(thread, ReceivedNumbers()).add(number)
        self.window.read += 1
        self.window.read_bytes += len(value)
        self.window.read_us.add((now_ns - due_ns) // 1000)
