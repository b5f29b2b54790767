"""Groups as stock clients use them: subscribe, share, stop, come back, commit; also across a kill -9."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from tests.support.clients.confluent import admin, create_topic, produce_all
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

RECORDS = 600
# Longer than a busy machine lets a process stand still: no member is given up on.
SESSION_MS = 120_000


def fill(node: Node, topic: str, partitions: int = 4, count: int = RECORDS, start: int = 0) -> set[bytes]:
    """Create a topic where it is new, and produce numbered values into it."""
    if start == 0:
        create_topic(node.bootstrap, topic, partitions)
    values = {f"{topic}-{number}".encode() for number in range(start, start + count)}
    produce_all(node.bootstrap, topic, [(value, value) for value in sorted(values)])
    return values


class Member:
    """A confluent-kafka consumer in a thread, which writes down what it reads and owns."""

    def __init__(self, node: Node, group: str, topic: str, **settings: Any) -> None:
        config = {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 300,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 200,
        } | {key.replace("_", "."): value for key, value in settings.items()}
        self.values: list[bytes] = []
        self.assignments = 0
        self.revoked: list[int] = []
        self.errors: list[str] = []
        self.owned: set[int] = set()
        self.consumer = Consumer(config)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._stop = threading.Event()
        self._leave = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += [each.partition for each in partitions]

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self.consumer.consume(100, timeout=0.1):
                error, value = message.error(), message.value()
                if error is None:
                    assert isinstance(value, bytes)
                    self.values.append(value)
                elif error.code() not in (
                    KafkaError._PARTITION_EOF,
                    KafkaError._TRANSPORT,
                    KafkaError._ALL_BROKERS_DOWN,
                ):
                    self.errors.append(str(error))
            # Asked for here only: from another thread it can wait for a callback that waits for the interpreter.
            self.owned = {each.partition for each in self.consumer.assignment()}
        self.consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@contextmanager
def members(*made: Member) -> Iterator[tuple[Member, ...]]:
    try:
        yield made
    finally:
        for member in made:
            if member._thread.is_alive():
                member.stop()


def test_groups_read_everything_while_another_starts_and_one_stops(node: Node) -> None:
    values = fill(node, "shared")
    with members(*(Member(node, f"group-{n}", "shared") for n in range(3))) as first:
        eventually(lambda: all(set(m.values) == values for m in first), "three groups read the first part")
        with members(Member(node, "group-3", "shared")) as (fourth,):
            first[0].stop()
            more = fill(node, "shared", start=RECORDS)
            running = [*first[1:], fourth]
            eventually(lambda: all(set(m.values) == values | more for m in running), "the others read on")
            assert all(len(m.values) == 2 * RECORDS for m in running), "nothing twice"
            assert set(first[0].values) == values
    with members(Member(node, "group-0", "shared")) as (back,):
        eventually(lambda: set(back.values) >= more, "the stopped group goes on where it was")
        assert set(back.values) == more
    assert not any(m.errors for m in [*first, fourth, back])


def test_the_members_of_a_group_share_the_partitions(node: Node) -> None:
    fill(node, "split", 6)
    with members(*(Member(node, "sharing", "split") for _ in range(3))) as all_of_them:
        eventually(lambda: sorted(len(m.owned) for m in all_of_them) == [2, 2, 2], "each owns two partitions")
        assert set().union(*(m.owned for m in all_of_them)) == set(range(6))
        all_of_them[0].stop()
        rest = all_of_them[1:]
        eventually(lambda: sorted(len(m.owned) for m in rest) == [3, 3], "the others take over at once")


def test_surplus_members_stay_idle(node: Node) -> None:
    fill(node, "narrow", 1)
    with members(*(Member(node, "crowd", "narrow") for _ in range(2))) as both:
        eventually(lambda: sorted(len(m.owned) for m in both) == [0, 1], "one owns the partition")
        eventually(lambda: sum(len(m.values) for m in both) == RECORDS, "all is read once")


def test_a_static_member_bounces_without_a_rebalance(node: Node) -> None:
    values = fill(node, "calm", 4)
    first, second = (Member(node, "calm", "calm", group_instance_id=f"i{n}") for n in (1, 2))
    with members(first, second):
        eventually(lambda: len(first.owned) == len(second.owned) == 2, "both own two partitions")
        before, owned = (first.assignments, list(first.revoked)), second.owned
        second.stop()
        with members(Member(node, "calm", "calm", group_instance_id="i2")) as (again,):
            eventually(lambda: again.owned == owned, "it has its partitions back")
            eventually(lambda: set(first.values + second.values + again.values) == values, "all is read")
            time.sleep(1)
            assert (first.assignments, first.revoked) == before, "the other was not disturbed"


def test_cooperative_members_keep_what_stays_theirs(node: Node) -> None:
    fill(node, "gentle", 6)
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    with members(Member(node, "gentle", "gentle", **settings)) as (first,):
        eventually(lambda: len(first.owned) == 6, "one owns all")
        with members(Member(node, "gentle", "gentle", **settings)) as (second,):
            eventually(lambda: len(first.owned) == len(second.owned) == 3, "they share")
            assert set(first.revoked) == second.owned, "only what moved was taken away"
        assert first.errors == []


def test_commits_and_members_survive_a_kill(own_node: Node) -> None:
    fill(own_node, "durable", 2)
    consumer = Consumer({"bootstrap.servers": own_node.bootstrap, "group.id": "manual", "enable.auto.commit": False})
    for offset in range(1, 200):
        consumer.commit(offsets=[TopicPartition("durable", offset % 2, offset)], asynchronous=False)
    with members(Member(own_node, "living", "durable")) as (member,):
        eventually(lambda: len(member.values) == RECORDS, "all is read")
        eventually(lambda: committed(own_node, "living", "durable", 2) == RECORDS, "all is committed")
        assignments = member.assignments
        own_node.kill()
        own_node.start()
        found = consumer.committed([TopicPartition("durable", p) for p in range(2)], timeout=PATIENCE_S)
        assert [each.offset for each in found] == [198, 199]
        fill(own_node, "durable", start=RECORDS)
        eventually(lambda: len(member.values) >= 2 * RECORDS, "the member goes on")
        assert len(member.values) == 2 * RECORDS, "nothing twice"
        assert member.assignments == assignments, "its generation was there again: no rebalance"
    consumer.close()


def state(node: Node, group: str) -> str:
    client = admin(node.bootstrap)  # a client that is collected before it is answered gives up
    return str(client.describe_consumer_groups([group])[group].result(timeout=PATIENCE_S).state.name)


def committed(node: Node, group: str, topic: str, partitions: int) -> int:
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(partitions)])
    client = admin(node.bootstrap)  # a client that is collected before it is answered gives up
    answer = client.list_consumer_group_offsets([asked])[group].result(timeout=PATIENCE_S)
    return sum(max(0, each.offset) for each in answer.topic_partitions or [])


def test_offsets_are_reset_and_groups_deleted_by_an_administrator(node: Node) -> None:
    values = fill(node, "reset", 2)
    with members(Member(node, "reset", "reset")) as (member,):
        eventually(lambda: set(member.values) == values, "all is read")
        client = admin(node.bootstrap)
        described = client.describe_consumer_groups(["reset"])["reset"].result(timeout=PATIENCE_S)
        assert described.state.name == "STABLE"
        assert {each.partition for m in described.members for each in m.assignment.topic_partitions} == {0, 1}
    # Commits of its members may arrive after they have gone.
    eventually(lambda: state(node, "reset") == "EMPTY", "its member has left")
    listed = client.list_consumer_groups().result(timeout=PATIENCE_S)
    assert "reset" in {each.group_id for each in listed.valid}
    back = ConsumerGroupTopicPartitions("reset", [TopicPartition("reset", p, 0) for p in range(2)])
    client.alter_consumer_group_offsets([back])["reset"].result(timeout=PATIENCE_S)
    with members(Member(node, "reset", "reset")) as (again,):
        eventually(lambda: set(again.values) == values, "all is read again")
    eventually(lambda: state(node, "reset") == "EMPTY", "its member has left")
    client.delete_consumer_groups(["reset"])["reset"].result(timeout=PATIENCE_S)
    assert committed(node, "reset", "reset", 2) == 0


def test_kafka_python_subscribes(node: Node) -> None:
    kafka = pytest.importorskip("kafka")
    values = fill(node, "python", 3)

    def consumer() -> Any:
        return kafka.KafkaConsumer(
            "python", bootstrap_servers=node.bootstrap, group_id="python", auto_offset_reset="earliest",
            consumer_timeout_ms=3000, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=300,
        )  # fmt: skip

    first = consumer()
    read: set[bytes] = set()

    def reads(wanted: int) -> bool:
        for messages in first.poll(timeout_ms=500).values():
            read.update(message.value for message in messages)
        return len(read) >= wanted

    eventually(lambda: reads(10), "some are read")
    first.commit()
    eventually(lambda: reads(len(values)), "all are read")
    first.commit()
    assert read == values
    first.close()
    again = consumer()
    assert list(again) == []
    again.close()


async def test_aiokafka_subscribes(node: Node) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    values = await asyncio.to_thread(fill, node, "aio", 3)
    consumers = [
        aiokafka.AIOKafkaConsumer(
            "aio", bootstrap_servers=node.bootstrap, group_id="aio", auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=300,
        )
        for _ in range(2)
    ]  # fmt: skip
    read: set[bytes] = set()
    for consumer in consumers:
        await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            # Records that one of them read before the other came do not show that the other has its part.
            while read != values or not all(consumer.assignment() for consumer in consumers):
                for consumer in consumers:
                    for messages in (await consumer.getmany(timeout_ms=100)).values():
                        read |= {message.value for message in messages}
        await consumers[0].commit()
    finally:
        for consumer in consumers:
            await consumer.stop()
