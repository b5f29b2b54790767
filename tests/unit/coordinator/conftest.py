"""A group shard without a runtime, on virtual time: operations are replayed and settled at once, or held back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Moment
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.machine import GroupMachine
from odradek.coordinator.group.outcome import Outcome, PendingWrite
from odradek.coordinator.group.records import CoordinatorRecord
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline

START_MS = 1_700_000_000_000


def subscription(*topics: str, version: int = 1) -> bytes:
    """The consumer protocol's bytes for a subscription."""
    return version.to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=list(topics)), version)


class VirtualShard:
    """Drives a `GroupMachine` as its service would, one operation at a time."""

    def __init__(self, **settings: Any) -> None:
        self.config = GroupConfig(**settings)
        self.timeline = Timeline()
        self.machine = GroupMachine(self.config, self.timeline)
        self.log: list[CoordinatorRecord] = []
        self.answers: dict[int, Any] = {}
        self.clock_ms = 0
        self.held: list[PendingWrite] = []
        self.hold_writes = False
        self.fail_writes: ErrorCode | None = None
        self._tickets = 0
        self.timeline.mark(0)
        self.apply(self.machine.loaded(self.now))

    @property
    def now(self) -> Moment:
        return Moment(START_MS + self.clock_ms, self.clock_ms)

    def apply(self, result: Result[CoordinatorRecord, Outcome[Any]], ticket: int | None = None) -> Any:
        """Treat a result as the runtime does: replay or refuse its records, answer, settle."""
        outcome = result.response
        error = self.fail_writes if result.records and self.fail_writes else ErrorCode.NONE
        if error is ErrorCode.NONE:
            for record in result.records:
                self.machine.replay(record, len(self.log))
                self.log.append(record)
        for answered, response in outcome.completions:
            assert answered not in self.answers, "answered twice"
            self.answers[answered] = response
        if ticket is not None and outcome.response is not None:
            self.answers[ticket] = outcome.response
        if outcome.pending is not None:
            if self.hold_writes:
                self.held.append(outcome.pending)
            else:
                self.settle(outcome.pending, error)
        return outcome.response

    def settle(self, pending: PendingWrite, error: ErrorCode = ErrorCode.NONE) -> None:
        fails, self.fail_writes = self.fail_writes, None
        self.apply(self.machine.complete_write(pending, error, self.now))
        self.fail_writes = fails

    def release_writes(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.hold_writes = False
        held, self.held = self.held, []
        for pending in held:
            self.settle(pending, error)

    def advance(self, ms: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        target = self.clock_ms + ms
        while (deadline := self.machine.next_deadline_ms()) is not None and deadline <= target:
            self.clock_ms = max(self.clock_ms, deadline)
            self.apply(self.machine.on_deadline(self.now))
        self.clock_ms = target

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.machine.groups.find(group_id)
        assert group is not None
        return group

    # ---- requests

    def begin_join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        protocols: Sequence[tuple[str, bytes]] = (("range", b"meta"),),
        protocol_type: str = "consumer",
        instance: str | None = None,
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client: str = "client",
        reason: str | None = None,
    ) -> int:
        """Send a JoinGroup; returns its ticket."""
        ticket = self._tickets = self._tickets + 1
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            reason=reason,
        )
        caller = Caller(client, "/127.0.0.1", version, ticket, f"id{ticket}")
        self.apply(self.machine.join(request, caller, self.now), ticket)
        return ticket

    def join(self, member_id: str = "", **settings: Any) -> JoinGroupResponse:
        """Send a JoinGroup that is answered at once."""
        response = self.answers[self.begin_join(member_id, **settings)]
        assert isinstance(response, JoinGroupResponse)
        return response

    def enter(self, **settings: Any) -> tuple[str, int]:
        """Join as a new dynamic member, with the id that is asked for; returns (member id, ticket)."""
        asked = self.join("", **settings)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED, asked
        return asked.member_id, self.begin_join(asked.member_id, **settings)

    def begin_sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        """Send a SyncGroup; returns its ticket. Raises ApiError where it is refused."""
        ticket = self._tickets = self._tickets + 1
        request = SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=given)
                for each, given in (assignments or {}).items()
            ],
        )
        caller = Caller("client", "/127.0.0.1", 5, ticket)
        self.apply(self.machine.sync(request, caller, self.now), ticket)
        return ticket

    def sync(self, member_id: str, generation_id: int, *arguments: Any, **settings: Any) -> SyncGroupResponse:
        response = self.answers[self.begin_sync(member_id, generation_id, *arguments, **settings)]
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(
        self, member_id: str, generation_id: int, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, member_id=member_id, generation_id=generation_id, group_instance_id=instance
        )
        return self.code(lambda: self.machine.classic_heartbeat(request, self.now))

    def leave(
        self, *members: tuple[str, str | None], group: str = "g", reason: str | None = None
    ) -> LeaveGroupResponse:
        leaving = [MemberIdentity(member_id=m, group_instance_id=i, reason=reason) for m, i in members]
        request = LeaveGroupRequest(group_id=group, members=leaving)
        response = self.apply(self.machine.leave(request, self.now))
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation_id: int = -1,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        instance: str | None = None,
        retention_ms: int = -1,
        version: int = 9,
    ) -> ErrorCode:
        part = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        try:
            response = self.apply(self.machine.commits.commit(request, version, self.now))
        except ApiError as error:
            return error.code
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def committed(self, group: str = "g", topic: str = "t", partition: int = 0, *, stable: bool = False) -> int:
        request = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        )
        answer = self.apply(self.machine.commits.fetch(request, stable)).topics[0].partitions[0]
        return -100 - answer.error_code if answer.error_code else int(answer.committed_offset)

    def code(self, operation: Any) -> ErrorCode:
        """Run an operation; the code that it is refused with, or NONE."""
        try:
            self.apply(operation())
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    # ---- whole phases

    def stable(self, count: int = 2, **settings: Any) -> tuple[list[str], int]:
        """A stable group of new members, the first leading, each assigned its own id; (member ids, generation)."""
        entered = [self.enter(**settings) for _ in range(count)]
        self.advance(self.config.initial_rebalance_delay_ms * (count + 1))
        joined: list[JoinGroupResponse] = [self.answers[ticket] for _, ticket in entered]
        assert {each.error_code for each in joined} == {ErrorCode.NONE}, joined
        members = [member_id for member_id, _ in entered]
        generation_id = joined[0].generation_id
        group = settings.get("group", "g")
        waiting = [self.begin_sync(member_id, generation_id, group=group) for member_id in members[1:]]
        self.sync(members[0], generation_id, {each: each.encode() for each in members}, group=group)
        assert all(self.answers[ticket].error_code == ErrorCode.NONE for ticket in waiting)
        return members, generation_id

    def restarted(self) -> VirtualShard:
        """Another broker's shard that loads what this one has written."""
        settings = {each.name: getattr(self.config, each.name) for each in dataclasses.fields(self.config)}
        other = VirtualShard(**settings)
        other.clock_ms = self.clock_ms
        for offset, record in enumerate(self.log):
            other.machine.replay(record, offset)
            other.log.append(record)
        other.apply(other.machine.loaded(other.now))
        return other


@pytest.fixture
def shard() -> VirtualShard:
    return VirtualShard()


@pytest.fixture
def make_shard() -> type[VirtualShard]:
    return VirtualShard
