"""Stock consumers of both protocols in one group, rolled either way under load, with the node killed in the middle.

Members are polled in turn by one thread, so what `Fleet` writes down of owners is what they had at one moment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition

from tests.support.clients import admin, create_topic
from tests.support.node import Node

PATIENCE_S = 60.0
PARTITIONS = 6
# A partition that is handed over is free for as long as a few heartbeats; only one whose member was given up on is
# free for a session.
SESSION_S = 30.0
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.session.timeout.ms": 30_000,
    "group.consumer.session.timeout.ms": 30_000,
    "group.initial.rebalance.delay.ms": 100,
}
QUIET = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Member:
    """One consumer that commits each record that it has read."""

    def __init__(self, node: Node, topic: str, protocol: str, strategy: str, instance_id: str | None) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": node.bootstrap,
            "group.id": topic,
            "client.id": f"{protocol}-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": protocol,
        }
        if protocol == "classic":
            config |= {
                "session.timeout.ms": 30_000,
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

    def __init__(self, node: Node, topic: str, strategy: str = "range") -> None:
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
        owned = [partition for member in self.members for partition in member.owned]
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
        described = client.describe_consumer_groups([self.topic])[self.topic].result(timeout=20)
        return str(described.type.name)

    def close(self) -> None:
        for member in self.members:
            member.consumer.close()


@pytest.fixture(scope="module")
def quick_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("migration"), SETTINGS) as node:
        yield node


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def drained(fleet: Fleet) -> None:
    """Read what is left, without producing more."""
    fleet.producer.flush(20)
    deadline = time.monotonic() + PATIENCE_S
    while len(fleet.read) < fleet.sent:
        assert time.monotonic() < deadline, f"{len(fleet.read)} of {fleet.sent} records are read"
        for member in fleet.members:
            member.poll(fleet.read)


def commit_all(fleet: Fleet) -> None:
    for member in fleet.members:
        ends = [each for each in member.consumer.position(member.consumer.assignment()) if each.offset >= 0]
        member.consumer.commit(offsets=ends, asynchronous=False)


def committed(fleet: Fleet) -> list[int]:
    asked = ConsumerGroupTopicPartitions(fleet.topic, [TopicPartition(fleet.topic, p) for p in range(PARTITIONS)])
    client = admin(fleet.node.bootstrap)
    answer = client.list_consumer_group_offsets([asked])[fleet.topic].result(timeout=30)
    return [max(0, each.offset) for each in answer.topic_partitions or []]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_rolled_to_the_consumer_protocol_and_back(
    quick_node: Node, closing: ExitStack, strategy: str
) -> None:
    fleet = Fleet(quick_node, f"rolled-{strategy}", strategy)
    closing.callback(fleet.close)
    for _ in range(2):
        fleet.add("classic")
    fleet.until(fleet.shared, "two classic members share")
    assert fleet.group_type() == "CLASSIC"
    for protocol, kind in (("consumer", "CONSUMER"), ("classic", "CLASSIC")):
        for _ in range(2):
            old = fleet.members[0]
            fleet.add(protocol)
            fleet.until(fleet.shared, f"three members share, one of them new ({protocol})")
            assert fleet.group_type() == "CONSUMER", "while there is one of the consumer protocol"
            commit_all(fleet)
            before = committed(fleet)
            fleet.stop(old)
            fleet.until(fleet.shared, f"one old member stopped ({protocol})")
            pairs = zip(before, committed(fleet), strict=True)
            assert all(earlier <= later for earlier, later in pairs), "what was committed counts on"
        assert fleet.group_type() == kind
    drained(fleet)
    assert fleet.longest_s < SESSION_S, "a partition had no owner until its member was given up on"
    assert all(not member.errors for member in fleet.members), [member.errors for member in fleet.members]
    commit_all(fleet)
    assert sum(committed(fleet)) == fleet.sent


def test_a_node_that_is_killed_in_the_middle_knows_both_kinds_of_members(tmp_path: Path, closing: ExitStack) -> None:
    with Node(tmp_path, SETTINGS) as node:
        fleet = Fleet(node, "killed", "cooperative-sticky")
        closing.callback(fleet.close)
        for protocol in ("classic", "classic", "consumer"):
            fleet.add(protocol)
            fleet.until(fleet.shared, f"one more of {protocol}")
        before = [sorted(member.owned) for member in fleet.members]
        node.kill()
        node.start()
        seen = len(fleet.read)
        fleet.until(lambda: len(fleet.read) > seen + 10 * PARTITIONS and fleet.shared(), "they read on")
        assert [sorted(member.owned) for member in fleet.members] == before, "nobody lost its place"
        assert fleet.group_type() == "CONSUMER"
        # The last of the consumer protocol goes, and the node with it: the group goes on as a classic one.
        fleet.stop(fleet.members[2])
        node.kill()
        node.start()
        fleet.until(fleet.shared, "the classic members take over what it had")
        assert fleet.group_type() == "CLASSIC"
        drained(fleet)


def test_static_members_are_rolled_in_place(quick_node: Node, closing: ExitStack) -> None:
    fleet = Fleet(quick_node, "static", "range")
    closing.callback(fleet.close)
    for name in ("i0", "i1"):
        fleet.add("classic", name)
    fleet.until(fleet.shared, "two static classic members share")
    untouched = fleet.members[1]
    kept, was = set(untouched.owned), set(fleet.members[0].owned)
    for protocol, kind in (("consumer", "CONSUMER"), ("classic", "CLASSIC")):
        fleet.stop(fleet.members[0])
        fleet.members.insert(0, fleet.add(protocol, "i0"))
        fleet.members.pop()
        fleet.until(fleet.shared, f"it is back as {protocol}")
        assert (fleet.members[0].owned, untouched.owned) == (was, kept), "each has what it had"
        assert fleet.group_type() == kind
    drained(fleet)
