"""The producer of the demo: confluent-kafka as anyone would use it, idempotent, acks=all, one day after the other."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights.data import STATIC, Day, Event, closing_tick, static_events
from examples.flights.nodes import COPIES

# Times of 2013 would be past any retention; compacted tables keep the last record of each key.
FOR_GOOD = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "flights": (4, FOR_GOOD),
    "weather": (2, FOR_GOOD),
    **{name: (1, {"cleanup.policy": "compact"}) for name in STATIC},
    "delays-by-hour": (4, FOR_GOOD),
    "late-flights": (1, FOR_GOOD),
}


def create_topics(bootstrap: str) -> None:
    """Create all topics of the demo; raises KafkaException where the cluster refuses one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, partitions, COPIES, config=configs) for name, (partitions, configs) in TOPICS.items()]
    for future in admin.create_topics(wanted, operation_timeout=30).values():
        future.result(timeout=60)


class Feed(threading.Thread):
    """Produces the year; `acknowledged` counts flights, `refused` must stay empty, a new `day` begins with none open.

    Args:
        bootstrap: host:port of the brokers.
        folder: of the CSV files.
        days: what becomes known on each day.
        pace_s: how long the whole year should take at least.
    """

    def __init__(self, bootstrap: str, folder: Path, days: list[Day], pace_s: float) -> None:
        super().__init__(name="feed", daemon=True)
        self.days = days
        self.day = 0
        self.acknowledged = 0
        self.refused: list[str] = []
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self._folder = folder
        self._pace_s = pace_s
        # With idempotence the broker knows a record that is sent again after a broken connection, and order is kept.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "log_level": 2,
            }
        )

    @property
    def total(self) -> int:
        return sum(len(day.flights) for day in self.days)

    @property
    def date(self) -> str:
        return self.days[min(self.day, len(self.days) - 1)].date

    @property
    def done_ratio(self) -> float:
        return self.day / len(self.days)

    def send_tables(self) -> None:
        """Produce airlines, planes and airports, and wait until they are stored."""
        for name in STATIC:
            for event in static_events(self._folder, name):
                self._send(name, event, with_time=False)
        self._flush()

    def run(self) -> None:
        """Produce day after day; a day ends when all of it is acknowledged: clocks of real senders do not run apart."""
        try:
            self._run()
        except BaseException as error:  # reported by the main thread, which watches
            self.failure = error

    def _run(self) -> None:
        began = time.monotonic()
        for number, day in enumerate(self.days):
            self.day = number
            if self.stopping.is_set():
                return
            for event in day.weather:
                self._send("weather", event)
            for event in day.flights:
                self._send("flights", event, counted=True)
            self._flush()
            ahead_s = self._pace_s * (number + 1) / len(self.days) - (time.monotonic() - began)
            if ahead_s > 0:
                self.stopping.wait(ahead_s)
        for topic in ("flights", "weather"):
            self._send(topic, closing_tick(self.days[-1], f"tick of {topic}"))
        self._flush()
        self.day = len(self.days)

    def _send(self, topic: str, event: Event, *, counted: bool = False, with_time: bool = True) -> None:
        on_delivery = self._on_flight if counted else self._on_other
        timestamp_ms = event.known_ms if with_time else 0  # 0 lets the client put the time of now
        while True:
            try:
                self._producer.produce(topic, event.value, event.key, on_delivery=on_delivery, timestamp=timestamp_ms)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.05)

    def _flush(self) -> None:
        while self._producer.flush(0.5) and not self.stopping.is_set():
            continue
        if self.refused:
            raise RuntimeError(f"records were refused: {self.refused[:3]}")

    def _on_flight(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused.append(error.str())

    def _on_other(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error.str())
