"""One shard of consumer groups without an event loop, and the requests to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller
from odradek.coordinator.group.consumer.state import ConsumerGroup, Partitions
from odradek.coordinator.group.consumer.topics import TopicFacts, TopicsView
from odradek.coordinator.group.machine import GroupMachine
from odradek.coordinator.group.records import CoordinatorRecord, decode_record, encode_record
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.statemachine.timeline import Timeline

START_MS = 1_700_000_000_000


def view(version: int = 1, **counts: int) -> TopicsView:
    facts = [TopicFacts(name, UUID(int=ord(name[-1])), count) for name, count in counts.items()]
    return TopicsView(version, {each.name: each for each in facts}, {each.topic_id: each for each in facts})


class Box:
    """One shard without a loop: operations are applied, or fail, as its runtime would do it."""

    def __init__(self, topics: TopicsView | None = None, **settings: Any) -> None:
        self.topics = topics or view(ta=6)
        self.group_configs: dict[str, Mapping[str, str]] = {}
        # Every change is seen at once where a test does not ask for anything else.
        self.settings = {"assignment_interval_ms": 0} | settings
        self.log: list[CoordinatorRecord] = []
        self.clock_ms = 0
        self.machine = self._machine()

    def _machine(self) -> GroupMachine:
        self.timeline = Timeline()
        machine = GroupMachine(
            GroupConfig(),
            self.timeline,
            consumer_config=ConsumerGroupConfig(**self.settings),
            topics=lambda: self.topics,
            group_configs=lambda group_id: self.group_configs.get(group_id, {}),
        )
        for offset, record in enumerate(self.log):
            machine.replay(record, offset)
        machine.loaded(self.now)
        return machine

    @property
    def now(self) -> Moment:
        return Moment(START_MS + self.clock_ms, self.clock_ms)

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine.consumers.find("g")
        assert group is not None
        return group

    def restart(self) -> None:
        """The same log, as bytes, in a new machine."""
        encoded = [encode_record(record) for record in self.log]  # type: ignore[arg-type]  # all are records of this coordinator
        decoded = [decode_record(key, value) for key, value in encoded]
        assert all(decoded)
        self.log = [record for record in decoded if record is not None]
        self.machine = self._machine()

    def apply(self, result: Any) -> Any:
        for record in result.records:
            self.machine.replay(record, len(self.log))
            self.log.append(record)
        return result.response.response

    def beat(self, member_id: str = "", epoch: int = 0, version: int = 1, **fields: Any) -> Any:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["ta"], "topic_partitions": []} | fields
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        caller = HeartbeatCaller("client", "/host", version, "made")
        return self.apply(self.machine.consumer_heartbeat(request, caller, self.now))

    def advance(self, ms: int) -> None:
        target = self.clock_ms + ms
        while (deadline := self.machine.next_deadline_ms()) is not None and deadline <= target:
            self.clock_ms = max(self.clock_ms, deadline)
            self.apply(self.machine.on_deadline(self.now))
        self.clock_ms = target


def pairs(response: ConsumerGroupHeartbeatResponse) -> Partitions:
    assert response.assignment is not None
    return frozenset((each.topic_id, p) for each in response.assignment.topic_partitions for p in each.partitions)


def owned(partitions: Partitions) -> list[TopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition_id in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition_id)
    return [TopicPartitions(topic_id=topic_id, partitions=ids) for topic_id, ids in topics.items()]


def refused(code: ErrorCode, box: Box, *arguments: Any, **fields: Any) -> None:
    before = len(box.log)
    with pytest.raises(ApiError) as raised:
        box.beat(*arguments, **fields)
    assert raised.value.code is code
    assert len(box.log) == before, "a refusal leaves nothing behind"
