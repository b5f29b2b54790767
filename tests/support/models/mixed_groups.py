"""Clients of both group protocols over one shard without a loop, for walks of groups that change their protocol.

A `ClassicClient` is a consumer as Kafka's clients are one: it joins, leads where it is asked to, gives up what it must
before it joins (eager) or after its new assignment (cooperative). A `NewClient` speaks the consumer protocol. Both own
the partitions that they may read at this moment, which is what the walks look at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.classic.subscription import owned_partitions, read_assignment, read_subscription
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller
from odradek.coordinator.group.consumer.topics import TopicFacts, TopicsView
from odradek.coordinator.group.machine import GroupMachine
from odradek.coordinator.group.outcome import PendingWrite
from odradek.coordinator.group.records import CoordinatorRecord, TransactionEndRecord, decode_record, encode_record
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.statemachine.timeline import Timeline

START_MS = 1_700_000_000_000
GROUP = "g"
Named = frozenset[tuple[str, int]]


def topics_view(version: int = 1, **counts: int) -> TopicsView:
    """Topics by name, with that many partitions."""
    facts = [TopicFacts(name, UUID(int=ord(name[-1])), count) for name, count in counts.items()]
    return TopicsView(version, {each.name: each for each in facts}, {each.topic_id: each for each in facts})


def subscription_bytes(topics: Sequence[str], owned: Named = frozenset(), version: int = 1) -> bytes:
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(owned):
        grouped.setdefault(topic, []).append(index)
    mine = [OwnedTopic(topic=topic, partitions=ids) for topic, ids in grouped.items()]
    return version.to_bytes(2, "big") + encode(
        ConsumerProtocolSubscription(topics=list(topics), owned_partitions=mine), version
    )


def assignment_bytes(partitions: Named, version: int = 1) -> bytes:
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        grouped.setdefault(topic, []).append(index)
    topics = [AssignedTopic(topic=topic, partitions=ids) for topic, ids in grouped.items()]
    return version.to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=topics), version)


class MixedShard:
    """One shard; operations are applied, or fail, as its runtime would do it."""

    def __init__(
        self, topics: TopicsView, *, policy: str = "bidirectional", most_consumers: int = 1000, **settings: Any
    ) -> None:
        self.topics = topics
        self.settings = settings
        self.policy = policy
        self.most_consumers = most_consumers
        self.log: list[CoordinatorRecord] = []
        self.answers: dict[int, Any] = {}
        self.clock_ms = 0
        self.fail_next = False
        self.ticket = 0
        self.machine = self._load()

    def _load(self) -> GroupMachine:
        self.timeline = Timeline()
        machine = GroupMachine(
            GroupConfig(initial_rebalance_delay_ms=0, **self.settings),
            self.timeline,
            consumer_config=ConsumerGroupConfig(migration_policy=self.policy, max_size=self.most_consumers),
            topics=lambda: self.topics,
        )
        for offset, record in enumerate(self.log):
            machine.replay(record, offset)
        self.timeline.mark(len(self.log))
        machine.loaded(self.now)
        return machine

    @property
    def now(self) -> Moment:
        return Moment(START_MS + self.clock_ms, self.clock_ms)

    def restart(self) -> None:
        """The same log, as bytes, in a new machine; each parked request is answered NOT_COORDINATOR."""
        decoded: list[CoordinatorRecord] = []
        for record in self.log:
            assert not isinstance(record, TransactionEndRecord)
            read = decode_record(*encode_record(record))
            assert read is not None
            decoded.append(read)
        self.log = decoded
        self.machine = self._load()

    def apply(self, result: Any, ticket: int | None = None) -> Any:
        outcome = result.response
        failed = self.fail_next and bool(result.records)
        base = len(self.log)
        for record in result.records:
            self.machine.replay(record, len(self.log))
            self.log.append(record)
        if failed:
            self.fail_next = False
            del self.log[base:]
            self.timeline.revert_to(base)
        else:
            self.timeline.mark(len(self.log))
        for answered, response in outcome.completions:
            assert answered not in self.answers, "answered twice"
            self.answers[answered] = response
        if outcome.pending is not None:
            self.settle(outcome.pending, ErrorCode.COORDINATOR_NOT_AVAILABLE if failed else ErrorCode.NONE)
        if (failed and outcome.pending is None) or (failed and ticket not in self.answers):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write failed")
        if ticket is not None and outcome.response is not None:
            self.answers[ticket] = outcome.response
        return outcome.response

    def settle(self, pending: PendingWrite, error: ErrorCode) -> None:
        self.apply(self.machine.complete_write(pending, error, self.now))

    def advance(self, ms: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        target = self.clock_ms + ms
        while (deadline := self.machine.next_deadline_ms()) is not None and deadline <= target:
            self.clock_ms = max(self.clock_ms, deadline)
            with contextlib.suppress(ApiError):  # a write that fails here answers no request
                self.apply(self.machine.on_deadline(self.now))
        self.clock_ms = target

    @property
    def kind(self) -> str:
        """The protocol of the group at this moment."""
        return "consumer" if self.machine.consumers.find(GROUP) is not None else "classic"


class ClassicClient:
    """See the module's head."""

    def __init__(
        self,
        shard: MixedShard,
        name: str,
        topics: Sequence[str],
        *,
        cooperative: bool = False,
        instance_id: str | None = None,
        session_ms: int = 10_000,
    ) -> None:
        self.shard = shard
        self.name = name
        self.topics = topics
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.protocol = "cooperative-sticky" if cooperative else "range"
        self.member_id = ""
        self.generation_id = -1
        self.owned: Named = frozenset()
        self.waiting: tuple[str, int] | None = None
        self.joined = False
        self.rebalances = 0
        self.fenced = False

    def discard_parked(self) -> None:
        """Lose the pending request, as the coordinator is another one now."""
        self.waiting = None

    def settle(self) -> None:
        """Do the next thing that a consumer would do."""
        if self.fenced:
            return
        if self.waiting is not None:
            self._poll_answer()
        elif not self.joined:
            self._join()
        else:
            self._beat()

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        self.owned, self.joined = frozenset(), False
        self.shard.apply(self.shard.machine.leave(request, self.shard.now))

    def _caller(self) -> tuple[Caller, int]:
        self.shard.ticket += 1
        return Caller(self.name, "/127.0.0.1", 9, self.shard.ticket, f"id{self.shard.ticket}"), self.shard.ticket

    def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.generation_id,
            group_instance_id=self.instance_id,
        )
        try:
            self.shard.apply(self.shard.machine.classic_heartbeat(request, self.shard.now))
        except ApiError as error:
            self._on_error(error.code)

    def _on_error(self, code: ErrorCode) -> None:
        self.joined = False
        if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            return
        self.owned, self.generation_id = frozenset(), -1  # onPartitionsLost
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = True
        else:
            assert code is ErrorCode.ILLEGAL_GENERATION, code

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = frozenset()
        subscription = subscription_bytes(self.topics, self.owned)
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=subscription)],
        )
        caller, ticket = self._caller()
        self.waiting = ("join", ticket)

        def operation() -> Any:
            self.shard.apply(self.shard.machine.make_room_for_classic(GROUP))
            return self.shard.machine.join(request, caller, self.shard.now)

        self._apply(operation, ticket)

    def _apply(self, operation: Any, ticket: int) -> None:
        try:
            self.shard.apply(operation(), ticket)
        except ApiError as error:
            self.waiting = None
            self._on_error(error.code)

    def _poll_answer(self) -> None:
        assert self.waiting is not None
        kind, ticket = self.waiting
        answer = self.shard.answers.get(ticket)
        if answer is None:
            return
        self.waiting = None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif code is not ErrorCode.NONE:
            self._on_error(code)
        elif kind == "join":
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
            self._sync(answer)
        else:
            self._accept(read_assignment(answer.assignment))

    def _sync(self, joined: Any) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.generation_id,
            group_instance_id=self.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
        )
        if joined.leader == self.member_id:
            given = self._assign({each.member_id: each.metadata for each in joined.members})
            request.assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
                for member_id, partitions in given.items()
            ]
        caller, ticket = self._caller()
        self.waiting = ("sync", ticket)
        self._apply(lambda: self.shard.machine.sync(request, caller, self.shard.now), ticket)

    def _assign(self, metadata: Mapping[str, bytes]) -> dict[str, Named]:
        """Round about; of a cooperative group only partitions that no other member still owns."""
        holders: dict[tuple[str, int], str] = {}
        if self.cooperative:
            for member_id, data in metadata.items():
                for partition in owned_partitions(read_subscription(data)):
                    holders[partition] = member_id
        members = sorted(metadata)
        given: dict[str, set[tuple[str, int]]] = {member_id: set() for member_id in members}
        view = self.shard.topics
        everything = [(name, index) for name in self.topics for index in range(view.by_name[name].partition_count)]
        for position, partition in enumerate(everything):
            wanted = members[position % len(members)]
            if holders.get(partition, wanted) == wanted:
                given[wanted].add(partition)
        return {member_id: frozenset(partitions) for member_id, partitions in given.items()}

    def _accept(self, assigned: Named) -> None:
        revoked = self.owned - assigned
        self.owned = assigned
        self.rebalances += 1
        # A cooperative member that gave something up joins again to say so.
        self.joined = not (self.cooperative and revoked)


class NewClient:
    """A consumer as KIP-848 has it: it owns what it was assigned, until it has given it up and said so."""

    def __init__(
        self, shard: MixedShard, member_id: str, topics: Sequence[str], *, instance_id: str | None = None
    ) -> None:
        self.shard = shard
        self.member_id = member_id
        self.topics = topics
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Named = frozenset()
        self.reported: Named = frozenset()
        self.fenced = False

    def discard_parked(self) -> None:
        """It waits for no other member."""

    def settle(self) -> None:
        if self.fenced:
            return
        try:
            answer = self._beat(self.epoch)
        except ApiError as error:
            if error.code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNRELEASED_INSTANCE_ID):
                return
            if error.code is ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
            lost = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
            assert error.code in (*lost, ErrorCode.GROUP_ID_NOT_FOUND), error
            self.epoch, self.owned, self.reported = 0, frozenset(), frozenset()
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = {topic.topic_id: topic.name for topic in self.shard.topics.by_id.values()}
            self.reported = frozenset(
                (names[each.topic_id], index)
                for each in answer.assignment.topic_partitions
                for index in each.partitions
            )
        self.owned = self.reported

    def leave(self, epoch: int = -1) -> None:
        self.owned = frozenset()
        self._beat(epoch)
        self.epoch = 0

    def _beat(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        ids = {topic.name: topic.topic_id for topic in self.shard.topics.by_id.values()}
        grouped: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            grouped.setdefault(topic, []).append(index)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            topic_partitions=[TopicPartitions(topic_id=ids[name], partitions=each) for name, each in grouped.items()],
        )
        if epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = list(self.topics)
        caller = HeartbeatCaller("new", "/127.0.0.1", 1, "made")
        answer = self.shard.apply(self.shard.machine.consumer_heartbeat(request, caller, self.shard.now))
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer
