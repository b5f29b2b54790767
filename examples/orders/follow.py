"""From events to orders, exactly once: a member of a group that may be killed, and whose partitions may move.

A member knows the orders of the partitions that it was given, because it reads those partitions again from their start
up to what the group has committed. What it makes of the events after that, and how far it came, are one transaction.
So a member that lost its partitions without knowing it (it stood still for a minute) cannot write: its offsets are
refused, and with them its orders.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from examples.orders.model import Event, Order, apply
from examples.topics import TIMEOUT_S, commit_with_offsets, records, transactional_producer

BATCH = 200
POLL_S = 0.3
# How often a member says how far it is: soon where events come, rarely where none do.
BUSY_S, IDLE_S = 2.0, 30.0


class Follower:
    """One member.

    Args:
        group: the members that share the partitions, and where they got to.
        member: the same over restarts, so that a new start ends the transaction that the killed one left.
        events: the topic to read.
        orders: the topic to write, with as many partitions: an order's state goes where its events came from.
        say: takes a line for a person, now and then.
    """

    def __init__(
        self, bootstrap: str, group: str, member: str, events: str, orders: str, say: Callable[[str], None]
    ) -> None:
        self._bootstrap, self._events, self._orders = bootstrap, events, orders
        self._say = say
        self._count, self._said, self._said_at = 0, 0, time.monotonic()
        # Partition → order → its state. A partition is here only while it is ours.
        self._known: dict[int, dict[str, Order]] = {}
        self._ended: set[int] = set()
        self._producer = transactional_producer(bootstrap, f"{group}-{member}")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        self._consumer.subscribe([events], on_assign=self._on_assign, on_revoke=self._on_revoke)
        say(f"member {member} of group {group} waits for partitions of {events}")

    def run(self, *, until_idle: bool) -> None:
        """Follow; with `until_idle` until every partition that is ours is read to its end. Raises OutOfOrderError."""
        try:
            while not (until_idle and self._known and self._known.keys() <= self._ended):
                self.step()
                self._tell_now_and_then()
        finally:
            self._consumer.close()
            self._say(f"{self._count:,} events followed in all")

    def step(self) -> None:
        """Take some events, and write the orders that they make in one transaction."""
        messages = []
        for message in self._consumer.consume(BATCH, POLL_S):
            error = message.error()
            if error is None:
                messages.append(message)
                self._ended.discard(message.partition() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition() or 0)
            else:
                raise KafkaException(error)
        if not messages:
            return
        self._producer.begin_transaction()
        try:
            following = {message.partition() or 0: self._take(message) for message in messages}
            offsets = [TopicPartition(self._events, partition, offset) for partition, offset in following.items()]
            commit_with_offsets(self._producer, offsets, self._consumer)
            self._count += len(messages)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(TIMEOUT_S)
            # What we know is ahead of what is committed: rebuild it, and read on from there.
            for partition in self._begin_at_committed(list(self._known)):
                self._consumer.seek(partition)

    def _tell_now_and_then(self) -> None:
        quiet_s = time.monotonic() - self._said_at
        if quiet_s < BUSY_S or (self._count == self._said and quiet_s < IDLE_S):
            return
        known = sum(map(len, self._known.values()))
        rest = "no more yet" if self._count == self._said else f"{(self._count - self._said) / quiet_s:,.0f} a second"
        self._say(f"{self._count:,} events followed, {rest}; {known:,} orders known")
        self._said, self._said_at = self._count, time.monotonic()

    def _take(self, message: Message) -> int:
        """Apply one event to its order and send the order; returns the offset after the event."""
        partition, event = message.partition() or 0, Event.from_json(message.value())
        orders = self._known[partition]
        order = orders[event.order] = apply(orders.get(event.order), event)
        self._producer.produce(self._orders, order.to_json(), message.key(), partition)
        return (message.offset() or 0) + 1

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(self._begin_at_committed([each.partition for each in partitions]))
        self._said_at = time.monotonic()
        self._say(f"partitions {_numbers(partitions)} are ours")

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._known.pop(each.partition, None)
            self._ended.discard(each.partition)
        self._say(f"partitions {_numbers(partitions)} are no longer ours")

    def _begin_at_committed(self, partitions: list[int]) -> list[TopicPartition]:
        """Learn the orders of these partitions; returns where to read on.

        With read_committed the group's offset is returned once no transaction that would change it is open (KIP-447).
        """
        asked = [TopicPartition(self._events, partition) for partition in partitions]
        committed = self._consumer.committed(asked, TIMEOUT_S)
        for each in committed:
            each.offset = max(each.offset, 0)  # a negative one says that there is none
            self._known[each.partition] = self._replay(each.partition, each.offset)
        return committed

    def _replay(self, partition: int, until: int) -> dict[str, Order]:
        """The orders of a partition as the events before the offset `until` made them."""
        orders: dict[str, Order] = {}
        for message in records(self._bootstrap, self._events, partition, until):
            if (message.offset() or 0) >= until:
                break
            event = Event.from_json(message.value())
            orders[event.order] = apply(orders.get(event.order), event)
        return orders


def _numbers(partitions: list[TopicPartition]) -> str:
    return ", ".join(str(number) for number in sorted(each.partition for each in partitions)) or "(none)"
