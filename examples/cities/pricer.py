"""Prices of a city: who asks for a car gets a ride at the price of the moment, each once.

python -m examples.cities.pricer CITY HOST:PORT        bootstrap.servers of the city's cluster

It may be killed at any time: rides, and how far it has read, are one transaction. The price needs the last events of a
zone, so it reads those again when it is started.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from examples.cities.market import WINDOW, ZONES, Event, Ride, Zone
from examples.topics import TIMEOUT_S, commit_with_offsets, transactional_producer

MARKET, RIDES = "market", "rides"
GROUP = "pricer"
BATCH = 200
POLL_S = 0.2


class Pricer:
    """The one that is started last is the one that prices: the transactional id fences earlier ones."""

    def __init__(self, city: str, bootstrap: str) -> None:
        self._city = city
        self._producer = transactional_producer(bootstrap, GROUP)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "log_level": 2,
            }
        )
        self._zones: list[Zone] = []
        self._following: dict[int, int] = {}
        self._go_back()

    def step(self) -> None:
        """Price some events in one transaction."""
        messages = self._consumer.consume(BATCH, POLL_S)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        if not messages:
            return
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._price(message)
            offsets = [TopicPartition(MARKET, zone, offset) for zone, offset in self._following.items()]
            commit_with_offsets(self._producer, offsets, self._consumer)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(TIMEOUT_S)
            self._go_back()

    def _price(self, message: Message) -> None:
        zone, offset = message.partition() or 0, message.offset() or 0
        event = Event(**json.loads(message.value() or b"{}"))
        self._zones[zone].take(event)
        if offset < self._following[zone]:
            return  # It has its price, and is only read for the next ones.
        self._following[zone] = offset + 1
        if event.asks:
            ride = Ride(self._city, event.number, self._zones[zone].cents, event.at_ms)
            self._producer.produce(RIDES, json.dumps(asdict(ride)))

    def _go_back(self) -> None:
        """Read on behind the last event that was priced, and before that the events that count for the next price."""
        asked = [TopicPartition(MARKET, zone) for zone in range(ZONES)]
        found = self._consumer.committed(asked, TIMEOUT_S)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        # A negative offset says that there is none.
        self._following = {each.partition: max(each.offset, 0) for each in found}
        self._zones = [Zone() for _ in range(ZONES)]
        self._consumer.assign(
            [TopicPartition(MARKET, zone, max(offset - WINDOW, 0)) for zone, offset in self._following.items()]
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("python -m examples.cities.pricer CITY HOST:PORT")
    pricer = Pricer(*sys.argv[1:])
    while True:
        pricer.step()
