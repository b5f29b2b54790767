"""Stock consumers of the newer protocol (group.protocol=consumer, KIP-848) against a real node."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from odradek.common.errors import ErrorCode
from odradek.metadata.model import ResourceType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.clients.api_calls import fresh_name
from tests.support.clients.confluent import admin, create_topic, produce_all
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S


class Reader:
    """One consumer; the records that it read, by partition, and the topics of each assignment."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        base = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self.consumer = Consumer(base | {key.replace("_", "."): value for key, value in settings.items()})
        self.given: list[list[str]] = []
        self.consumer.subscribe(topics, on_assign=lambda _, new: self.given.append(sorted(each.topic for each in new)))
        self.read: list[tuple[str, int, int]] = []

    def poll(self, *, commit: bool = True) -> None:
        for message in self.consumer.consume(100, 0.05):
            if message.error() is None:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None and partition is not None and offset is not None
                self.read.append((topic, partition, offset))
        if commit and self.read:
            ends: dict[tuple[str, int], int] = {}
            for topic, partition, offset in self.read:
                ends[topic, partition] = offset + 1
            mine = self.partitions
            offsets = [TopicPartition(*key, end) for key, end in ends.items() if key in mine]
            if offsets:
                self._commit(offsets)

    def _commit(self, offsets: list[TopicPartition]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.consumer.commit(offsets=offsets, asynchronous=False)
                return
            except KafkaException as error:
                # The member's epoch went on while the commit was under way: it learns that with its next heartbeat.
                # Until it has committed it does not poll, and so gives no partition away that another would read again.
                if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}


def until(readers: list[Reader], reached: Callable[..., bool], *, commit: bool = True) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, [sorted(each.partitions) for each in readers]
        for reader in readers:
            reader.poll(commit=commit)


def shares(readers: list[Reader]) -> list[int]:
    return sorted(len(each.partitions) for each in readers)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_members_share_leave_and_return(node: Node, closing: ExitStack) -> None:
    topic, group = fresh_name("shared"), fresh_name("g")
    create_topic(node.bootstrap, topic, 6)
    produce_all(node.bootstrap, topic, [(str(each).encode(), b"v") for each in range(300)])
    readers: list[Reader] = []
    for count, expected in ((1, [6]), (2, [3, 3]), (3, [2, 2, 2])):
        names = [f"^{topic}$"] if count == 3 else [topic]  # the last one by a regular expression
        readers.append(Reader(node.bootstrap, group, names))
        closing.callback(readers[-1].consumer.close)
        until(readers, lambda expected=expected: shares(readers) == expected)
    until(readers, lambda: sum(len(set(each.read)) for each in readers) >= 300)
    everything = [entry for each in readers for entry in each.read]
    assert len(everything) == len(set(everything)) == 300, "every record once, over two moves"
    client = admin(node.bootstrap)

    def described() -> tuple[str, str, int]:
        found = client.describe_consumer_groups([group])[group].result(timeout=PATIENCE_S)
        return found.type.name, found.state.name, len(found.members)

    until(readers, lambda: described() == ("CONSUMER", "STABLE", 3))  # once the last one has said that it knows
    readers.pop().consumer.close()
    until(readers, lambda: shares(readers) == [3, 3])


def test_named_topics_come_before_matched_ones(node: Node, closing: ExitStack) -> None:
    """librdkafka's test 0045 asks for two assignments, as Kafka makes them."""
    named, matched = fresh_name("named"), fresh_name("matched")
    create_topic(node.bootstrap, named, 2)
    create_topic(node.bootstrap, matched, 4)
    reader = Reader(node.bootstrap, fresh_name("g"), [f"^{matched}.*", named])
    closing.callback(reader.consumer.close)
    until([reader], lambda: len(reader.partitions) == 6)
    assert reader.given == [[named] * 2, [matched] * 4]


QUICK_SESSION_MS = 4000
QUICK_HEARTBEATS = {
    "group.consumer.min.session.timeout.ms": QUICK_SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}


def test_a_kill_of_the_node_costs_no_member_its_partitions(tmp_path: Path, closing: ExitStack) -> None:
    with Node(tmp_path, QUICK_HEARTBEATS) as node:
        create_topic(node.bootstrap, "t", 4)
        produce_all(node.bootstrap, "t", [(str(each).encode(), b"v") for each in range(100)])
        readers = [Reader(node.bootstrap, "g", ["t"]) for _ in range(2)]
        for reader in readers:
            closing.callback(reader.consumer.close)
        until(readers, lambda: shares(readers) == [2, 2])
        before = [reader.partitions for reader in readers]
        node.kill()
        node.start()
        until(readers, lambda: sum(len(set(reader.read)) for reader in readers) >= 100)
        assert [reader.partitions for reader in readers] == before
        # Sessions are short only now: a client may take its time to find a node that was away.
        with Wire(node.port) as wire:
            configure(wire, ResourceType.GROUP, "g", "consumer.session.timeout.ms", str(QUICK_SESSION_MS))
        # A member that is not there any more, and did not say so: a process that holds it is killed.
        silent = (
            "import sys, time; from confluent_kafka import Consumer; c = Consumer({'bootstrap.servers': sys.argv[1], "
        )
        silent += "'group.id': 'g', 'group.protocol': 'consumer'}); c.subscribe(['t'])\nwhile True: c.poll(0.1)"
        process = subprocess.Popen([sys.executable, "-c", silent, node.bootstrap])
        try:
            until(readers, lambda: shares(readers) == [1, 1] or shares(readers) == [1, 2])
        finally:
            process.kill()
            process.wait()
        until(readers, lambda: shares(readers) == [2, 2])


def test_a_static_member_returns_to_its_partitions(node: Node, closing: ExitStack) -> None:
    topic, group = fresh_name("static"), fresh_name("g")
    create_topic(node.bootstrap, topic, 4)
    one = Reader(node.bootstrap, group, [topic], group_instance_id="one")
    two = Reader(node.bootstrap, group, [topic], group_instance_id="two")
    closing.callback(one.consumer.close)
    until([one, two], lambda: shares([one, two]) == [2, 2])
    before = one.partitions, two.partitions
    two.consumer.close()
    again = Reader(node.bootstrap, group, [topic], group_instance_id="two")
    closing.callback(again.consumer.close)
    until([one, again], lambda: len(again.partitions) == 2)
    assert (one.partitions, again.partitions) == before


def test_consumer_group_responses_on_the_wire(node: Node) -> None:
    with Wire(node.port) as wire:
        asked = ConsumerGroupHeartbeatRequest(group_id=fresh_name("g"), member_id="m", member_epoch=3)
        for version in (0, 1):
            answer = wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, asked)
            assert answer.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
            described = wire.request(
                ApiKey.CONSUMER_GROUP_DESCRIBE, version, ConsumerGroupDescribeRequest(group_ids=["none"])
            )
            assert described.groups[0].error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
        empty = wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ConsumerGroupHeartbeatRequest(group_id=""))
        assert empty.error_code == ErrorCode.INVALID_REQUEST


# Longer than anything takes here: a member that does not wait has got another interval.
LONG_INTERVAL_MS = 600_000


def configure(wire: Wire, kind: ResourceType, name: str, key: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, config_operation=0, value=value)]
    )
    answer = wire.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE], answer


def test_the_interval_between_assignments_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    with Node(tmp_path, {"group.consumer.max.assignment.interval.ms": LONG_INTERVAL_MS}) as node:
        the_interval_is_changed(node)


def the_interval_is_changed(node: Node) -> None:
    topic = fresh_name("intervals")
    create_topic(node.bootstrap, topic, partitions=4)

    def join(wire: Wire, group: str, member: str) -> tuple[int, int]:
        """The member's epoch, and when it is to come back."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        deadline = time.monotonic() + PATIENCE_S
        while (answer := wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)).error_code:
            assert time.monotonic() < deadline, ErrorCode(answer.error_code)
            wire.request(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
            time.sleep(0.1)
        return answer.member_epoch, answer.heartbeat_interval_ms

    with Wire(node.port) as wire:
        configure(wire, ResourceType.BROKER, "", "group.consumer.assignment.interval.ms", str(LONG_INTERVAL_MS))
        slow, fast = fresh_name("slow"), fresh_name("fast")
        configure(wire, ResourceType.GROUP, fast, "consumer.assignment.interval.ms", "0")
        join(wire, slow, "a"), join(wire, fast, "a")
        assert join(wire, slow, "b") == (2, 5000), "it waits"
        assert join(wire, fast, "b") == (3, 5000)
        configure(wire, ResourceType.BROKER, "", "group.consumer.assignment.interval.ms", "0")
        assert join(wire, slow, "b") == (3, 5000), "it waits no longer"
