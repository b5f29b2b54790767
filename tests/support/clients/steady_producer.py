"""A producer of records at a steady pace to one partition, and when they were acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

PACE_S = 0.02
FLUSH_S = 90.0


class Steady(threading.Thread):
    """Sends numbered records with acks=all until it is left; `acknowledged` has their values with the time of it."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        security: Mapping[str, str | int | float | bool] | None = None,
        pace_s: float = PACE_S,
    ) -> None:
        """`security` has settings of librdkafka."""
        super().__init__(daemon=True)
        settings: dict[str, str | int | float | bool] = {"acks": "all", "linger.ms": 0, "message.timeout.ms": 120_000}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings, **(security or {})})
        self._topic, self._partition, self._pace_s = topic, partition, pace_s
        self._over = threading.Event()
        self.acknowledged: list[tuple[bytes, float]] = []
        self.errors: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            self._producer.produce(self._topic, b"%08d" % number, partition=self._partition, on_delivery=self._reported)
            self._producer.poll(0)
            number += 1
            time.sleep(self._pace_s)
        self._producer.flush(FLUSH_S)

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            value = message.value()
            assert isinstance(value, bytes)
            self.acknowledged.append((value, time.monotonic()))

    def count_since(self, moment_s: float) -> int:
        """The number of records that were acknowledged since then."""
        return sum(at_s >= moment_s for _, at_s in self.acknowledged)

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement from then until now."""
        times = [since_s, *(at_s for _, at_s in self.acknowledged if at_s >= since_s), time.monotonic()]
        return max(after - before for before, after in itertools.pairwise(times))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join(FLUSH_S)
