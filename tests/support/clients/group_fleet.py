"""A group of stock consumers of either protocol, polled in turn by one thread under a steady load.

`Fleet` records the owners of partitions at one moment; a partition with two owners fails its test at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.clients.confluent import admin, create_topic
from tests.support.waiting import PATIENCE_S

PARTITIONS = 6
# A partition that is handed over is free for as long as a few heartbeats; only one whose member was given up on is
# free for a session.
SESSION_S = 60.0
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 1000,  # librdkafka waits about as long for the answer
    "group.consumer.min.session.timeout.ms": 60_000,
    "group.consumer.session.timeout.ms": 60_000,
    "group.initial.rebalance.delay.ms": 100,
}
REBALANCING = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
)
QUIET = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Broker(Protocol):
    """A broker that clients reach: one of ours, or Apache Kafka."""

    @property
    def bootstrap(self) -> str: ...


class Member:
    """One consumer that commits each record that it has read."""

    def __init__(self, node: Broker, topic: str, protocol: str, strategy: str, instance_id: str | None) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": node.bootstrap,
            "group.id": topic,
            "client.id": f"{protocol}-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": protocol,
            # Their one broker comes back where it was. A client that finds its brokers by the first address again
            # whenever none answers may stay without any connection.
            "metadata.recovery.strategy": "none",
        }
        if protocol == "classic":
            config |= {
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": strategy,
            }
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        self.protocol = protocol
        self.errors: list[str] = []
        self.consumer = Consumer(config)
        self.consumer.subscribe([topic])

    def poll(self, read: Counter[bytes]) -> None:
        ends: dict[int, int] = {}
        topic = ""
        for message in self.consumer.consume(200, 0.02):
            error, value, partition, offset = message.error(), message.value(), message.partition(), message.offset()
            if error is None:
                assert value is not None and partition is not None and offset is not None
                read[value] += 1
                topic, ends[partition] = str(message.topic()), offset + 1
            elif error.code() not in QUIET:
                self.errors.append(str(error))
        if ends:
            self.consumer.commit(offsets=[TopicPartition(topic, p, end) for p, end in ends.items()], asynchronous=True)

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


class Fleet:
    """The members of one group, the records that go through it, and how long each partition had no owner."""

    def __init__(self, node: Broker, topic: str, strategy: str = "range") -> None:
        self.node, self.topic, self.strategy = node, topic, strategy
        create_topic(node.bootstrap, topic, PARTITIONS)
        self.producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
        self.members: list[Member] = []
        self.read: Counter[bytes] = Counter()
        self.sent = 0
        self.unowned_since: dict[int, float] = {}
        self.longest_s = 0.0

    def add(self, protocol: str, instance_id: str | None = None) -> Member:
        self.members.append(Member(self.node, self.topic, protocol, self.strategy, instance_id))
        return self.members[-1]

    def stop(self, member: Member) -> None:
        self.members.remove(member)
        member.consumer.close()

    def step(self) -> None:
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, f"{self.sent}".encode(), partition=partition)
            self.sent += 1
        self.producer.poll(0)
        for member in self.members:
            member.poll(self.read)
        # Each member is read twice, as assignments change meanwhile: a partition that one member had before and after
        # another one was seen with it has two owners.
        looks = [[member.owned for member in self.members] for _ in range(2)]
        owned = [partition for seen in zip(*looks, strict=True) for partition in set.intersection(*seen)]
        assert len(owned) == len(set(owned)), "one partition is read by two"
        now = time.monotonic()
        for partition in range(PARTITIONS):
            if partition in owned:
                since = self.unowned_since.pop(partition, now)
                self.longest_s = max(self.longest_s, now - since)
            else:
                self.unowned_since.setdefault(partition, now)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            state = [(each.protocol, sorted(each.owned), each.errors) for each in self.members]
            assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}: {state}"
            self.step()

    def shared(self) -> bool:
        """Whether the members have everything, in even parts."""
        sizes = [len(each.owned) for each in self.members]
        return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1

    def group_type(self) -> str:
        client = admin(self.node.bootstrap)  # a client that is collected before it is answered gives up
        described = client.describe_consumer_groups([self.topic])[self.topic].result(timeout=PATIENCE_S)
        return str(described.type.name)

    def close(self) -> None:
        for member in self.members:
            member.consumer.close()


def drained(fleet: Fleet) -> None:
    """Read what is left, without producing more."""
    fleet.producer.flush(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while len(fleet.read) < fleet.sent:
        assert time.monotonic() < deadline, f"{len(fleet.read)} of {fleet.sent} records are read"
        for member in fleet.members:
            member.poll(fleet.read)


def commit_all(fleet: Fleet) -> None:
    for member in fleet.members:
        deadline = time.monotonic() + PATIENCE_S
        while not _commits(member):
            assert time.monotonic() < deadline, "its group is rebalanced again and again"
            member.poll(fleet.read)


def _commits(member: Member) -> bool:
    """Whether the group accepts a commit; a member that learns of a rebalance late is refused until then."""
    # A partition without reads since it was assigned has no position yet; its last owner's reads are committed.
    ends = [each for each in member.consumer.position(member.consumer.assignment()) if each.offset >= 0]
    try:
        if ends:
            member.consumer.commit(offsets=ends, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in REBALANCING:
            raise
        return False
    return True


def committed(fleet: Fleet) -> list[int]:
    asked = ConsumerGroupTopicPartitions(fleet.topic, [TopicPartition(fleet.topic, p) for p in range(PARTITIONS)])
    client = admin(fleet.node.bootstrap)
    answer = client.list_consumer_group_offsets([asked])[fleet.topic].result(timeout=PATIENCE_S)
    return [max(0, each.offset) for each in answer.topic_partitions or []]
