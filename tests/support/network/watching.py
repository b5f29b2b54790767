"""A group of stock consumers at a site from whose work nothing at another site may keep it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, TopicPartition

from tests.support.waiting import PATIENCE_S


class Watching(threading.Thread):
    """Reads topics with a group until it is left, from their start.

    Attributes:
        read: offset and value of each record in the order of their arrival, by topic and partition.
        troubles: errors of the client and of partitions, and each assignment behind the first one.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], group: str = "watching") -> None:
        super().__init__(daemon=True)
        self.read: defaultdict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
        self.troubles: list[str] = []
        self._is_assigned = False
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "error_cb": lambda error: self.troubles.append(str(error)),
                "log_level": 2,
            }
        )
        self._consumer.subscribe(list(topics), on_assign=self._on_assign, on_lost=self._on_lost)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                for message in self._consumer.consume(1000, 0.05):
                    self._process(message)
        finally:
            self._consumer.close()

    def count(self, topic: str, partition: int = 0) -> int:
        """How many records were read so far."""
        return len(self.read[topic, partition])

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_assigned:
            self.troubles.append(f"assigned again: {partitions}")
        self._is_assigned = True

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.troubles.append(f"lost: {partitions}")

    def _process(self, message: Message) -> None:
        error, value, offset = message.error(), message.value(), message.offset()
        if error is not None:
            self.troubles.append(str(error))
            return
        assert isinstance(value, bytes) and offset is not None
        self.read[message.topic() or "", message.partition() or 0].append((offset, value))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join(PATIENCE_S)
