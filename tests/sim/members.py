"""Members of consumer groups in the box: they join, are given partitions, read, commit, and lose them again.

A member does what an application with `subscribe()` does through the classic protocol: JoinGroup, SyncGroup, then
Fetch, Heartbeat and OffsetCommit until the coordinator says that the group rebalances. Some die without LeaveGroup and
return as a new member or, with an instance id, as the same member (KIP-345); some pause for longer than their session
and commit afterwards, as an application does that was busy with its records.
"""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.client.cluster import check
from odradek.client.connection import Connection
from odradek.client.groups import decode_assignment, decode_subscription
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.codec import encode
from odradek.protocol.declare import Message
from odradek.protocol.messages import (
    consumer_protocol_assignment,
    join_group_request,
    leave_group_request,
    offset_commit_request,
    offset_fetch_request,
    sync_group_request,
)
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.statemachine.runtime import State
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.history import Assigned, Commit, Heard, Operation, Outcome
from tests.sim.lost_answers import LostAnswerError
from tests.sim.readers import OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, Reader
from tests.sim.world import World

# Session and rebalance timeouts. Where the session is the longer one, a static member that is silent stays in the group
# while it goes on to the next generation.
TIMEOUTS_MS = ((2_000, 4_000), (6_000, 1_500))
HEARTBEAT_S = 0.4
# A JoinGroup is answered when the last member has joined, or the rebalance timeout is over.
PARKED_S = 8.0
PROTOCOL = "range"
CONSUMER = "consumer"
SUBSCRIPTION_VERSION = 1
# The probabilities, at each step, that a member leaves, dies without LeaveGroup, or pauses.
LEAVES, DIES, STALLS = 0.005, 0.01, 0.015
STALL_S = (0.5, 7.0)
# Errors after which a commit has certainly not taken effect.
REFUSED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Member(Reader):
    """One member of one group, for as long as its host lives."""

    def __init__(
        self,
        world: World,
        name: str,
        process: int,
        recorder: Recorder,
        *,
        group: str,
        partitions: dict[str, int],
        instance_id: str | None = None,
        timeouts_ms: tuple[int, int] = TIMEOUTS_MS[0],
    ) -> None:
        """
        Args:
            partitions: the topics that it subscribes to, with how many each has.
            timeouts_ms: of its session, and of a rebalance.
        """
        super().__init__(world, name, process, recorder, partitions=[], sessions=False)
        self.group = group
        self._topics = partitions
        self._instance_id = instance_id
        self._session_ms, self._rebalance_ms = timeouts_ms
        self._member_id = ""
        self._generation = -1
        self._to_fetch: list[tuple[str, int]] = []
        self._committed: dict[tuple[str, int], int] = {}
        self._coordinator: Connection | None = None
        self._last_heartbeat_s = 0.0
        # The commit that is under way.
        self._open: Operation | None = None
        # Once it is set, the member makes no more trouble.
        self.finishing = False

    async def run(self) -> None:
        """Be a member until `stopping`, then leave."""
        while not self.stopping:
            try:
                if self._generation < 0:
                    await self._join()
                await self._step()
                await asyncio.sleep(self.random.choice((0.0, 0.02, 0.1)))
            except OdradekError as error:
                await self._after(error)
        try:
            await self._leave()
        except OdradekError:
            return

    def die(self) -> None:
        """Its host has failed for good; no LeaveGroup is sent."""
        self.world.report(f"{self.name} dies for good")
        if self._open is not None:
            self.recorder.complete(self._open)
        self.world.loop.crash(self.name)
        self.world.wires.host_died(self.name)

    async def _after(self, error: OdradekError) -> None:
        """Do as the coordinator said, or look for it again."""
        code = error.code if isinstance(error, ApiError) else None
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self._generation >= 0 and self.random.random() < 0.5:
            try:
                # As in `onPartitionsRevoked`, the member commits its offsets before it gives partitions up.
                await self._commit()
            except OdradekError:
                self._discard_coordinator()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
        if code in REFUSED:
            self._give_up_partitions()
            return
        if not isinstance(error, LostAnswerError):
            self._discard_coordinator()
        await asyncio.sleep(RETRY_S)

    async def _step(self) -> None:
        now_s = self.world.loop.time()
        if now_s - self._last_heartbeat_s >= HEARTBEAT_S:
            await self._heartbeat()
        if self._to_fetch:
            await self._fetch_committed()
        if self.positions:
            try:
                await self.poll(max_wait_ms=self.random.choice((0, 100, 300)))
            except OdradekError:
                self.close_connections()
                await asyncio.sleep(RETRY_S)
        else:
            await asyncio.sleep(0.1)
        if self.finishing or self.random.random() < 0.3:
            await self._commit()
        if not self.finishing:
            await self._misbehave()

    async def _misbehave(self) -> None:
        chance = self.random.random()
        if chance < LEAVES:
            self.world.report(f"{self.name} leaves")
            await self._leave()
        elif chance < LEAVES + DIES:
            self.world.report(f"{self.name} dies and starts again")
            self._discard_coordinator()
            self.close_connections()
            self._member_id = ""
            self._give_up_partitions()
            await asyncio.sleep(self.random.uniform(0.1, 2.0))
        elif chance < LEAVES + DIES + STALLS:
            silent_s = self.random.uniform(*STALL_S)
            self.world.report(f"{self.name} is silent for {silent_s:.1f} s")
            await asyncio.sleep(silent_s)
            if self.random.random() < 0.5:
                await self._commit()

    # -- the group ------------------------------------------------------------------------------------------------

    async def coordinator(self) -> Connection:
        """A connection to the group's coordinator. Raises OdradekError."""
        if self._coordinator is None or not self._coordinator.is_open:
            self._coordinator = await self.cluster.connection_to(await self.cluster.coordinator(self.group))
        return self._coordinator

    def _loaded_in(self, connection: Connection) -> int | None:
        """The leader epoch in which the process at the other end coordinates the group, all being loaded."""
        machine = self.world.machines.get(self.network.process_at(connection).partition(",")[0])
        if machine is None or machine.broker is None:
            return None
        try:
            shard = machine.broker.coordinator.shard(self.group)
        except ApiError:
            return None
        return shard.leader_epoch if shard.runtime.state is State.ACTIVE else None

    def _discard_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    def _give_up_partitions(self) -> None:
        self._generation = -1
        self.positions.clear()
        self._to_fetch.clear()
        self._committed.clear()

    async def _join(self) -> None:
        """JoinGroup and SyncGroup: afterwards it has partitions, maybe none. Raises OdradekError."""
        connection = await self.coordinator()
        subscription = ConsumerProtocolSubscription(topics=sorted(self._topics))
        request = join_group_request.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=CONSUMER,
            protocols=[
                join_group_request.JoinGroupRequestProtocol(
                    name=PROTOCOL, metadata=framed(subscription, SUBSCRIPTION_VERSION)
                )
            ],
        )
        joined = await self.request(connection, request, JoinGroupResponse, timeout_s=PARKED_S)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = joined.member_id
            joined = await self.request(connection, request, JoinGroupResponse, timeout_s=PARKED_S)
        check(joined.error_code, self.group)
        self._member_id = joined.member_id
        leads = joined.leader == joined.member_id and not joined.skip_assignment
        await self._sync(connection, joined, self._assignments(joined) if leads else [])

    def _assignments(self, joined: JoinGroupResponse) -> list[sync_group_request.SyncGroupRequestAssignment]:
        """The assignments of the group's leader: every partition to one of the members that subscribe to its topic."""
        given: dict[str, dict[str, list[int]]] = {each.member_id: {} for each in joined.members}
        for topic, count in sorted(self._topics.items()):
            takers = [each.member_id for each in joined.members if topic in decode_subscription(each.metadata)]
            self.random.shuffle(takers)
            for number in range(count):
                given[takers[number % len(takers)]].setdefault(topic, []).append(number)
        assignments = []
        for member_id, topics in given.items():
            assigned = [
                consumer_protocol_assignment.TopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in topics.items()
            ]
            message = consumer_protocol_assignment.ConsumerProtocolAssignment(assigned_partitions=assigned)
            assignments.append(
                sync_group_request.SyncGroupRequestAssignment(member_id=member_id, assignment=framed(message, 1))
            )
        return assignments

    async def _sync(
        self,
        connection: Connection,
        joined: JoinGroupResponse,
        assignments: list[sync_group_request.SyncGroupRequestAssignment],
    ) -> None:
        if not self.finishing and self.random.random() < 0.05:
            await asyncio.sleep(self.random.uniform(0.1, STALL_S[1]))
        request = sync_group_request.SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._instance_id,
            protocol_type=CONSUMER,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        invoked = self.recorder.invoke()
        synced = await self.request(connection, request, SyncGroupResponse, timeout_s=PARKED_S)
        check(synced.error_code, self.group)
        self._give_up_partitions()
        self._generation = joined.generation_id
        self._last_heartbeat_s = self.world.loop.time()
        self._to_fetch = decode_assignment(synced.assignment)
        owned = tuple(f"{topic}-{number}" for topic, number in self._to_fetch)
        self.world.report(f"{self.name} has {', '.join(owned) or 'nothing'} in generation {self._generation}")
        step = Assigned(
            self.group,
            self._generation,
            self._instance_id or self._member_id,
            owned,
            self.network.process_at(connection),
        )
        self.recorder.complete(Operation(self.process, Outcome.OK, [step], invoked=invoked))

    async def _heartbeat(self) -> None:
        connection = await self.coordinator()
        invoked, loaded = self.recorder.invoke(), self._loaded_in(connection)
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        response = await self.request(connection, request, HeartbeatResponse)
        check(response.error_code, self.group)
        self._last_heartbeat_s = self.world.loop.time()
        source = self.network.process_at(connection)
        if loaded is None or loaded != self._loaded_in(connection):
            source += ", which may have loaded"
        step = Heard(self.group, self._generation, source)
        self.recorder.complete(Operation(self.process, Outcome.OK, [step], invoked=invoked))

    async def _leave(self) -> None:
        if not self._member_id:
            return
        identity = leave_group_request.MemberIdentity(member_id=self._member_id, group_instance_id=self._instance_id)
        request = leave_group_request.LeaveGroupRequest(group_id=self.group, members=[identity])
        self._member_id = ""
        self._give_up_partitions()
        await self.request(await self.coordinator(), request, LeaveGroupResponse)

    # -- offsets --------------------------------------------------------------------------------------------------

    async def _fetch_committed(self) -> None:
        """Begin each new partition where the group left it. Raises OdradekError."""
        topics: dict[str, list[int]] = {}
        for topic, number in self._to_fetch:
            topics.setdefault(topic, []).append(number)
        request = offset_fetch_request.OffsetFetchRequest(
            group_id=self.group,
            topics=[
                offset_fetch_request.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in topics.items()
            ],
            require_stable=True,
        )
        invoked = self.recorder.invoke()
        response = await self.request(await self.coordinator(), request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
        check(response.error_code, self.group)
        found: dict[tuple[str, int], int] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                check(answer.error_code, self.group)
                found[topic.name, answer.partition_index] = answer.committed_offset
                self.heard_of_epoch((topic.name, answer.partition_index), answer.committed_leader_epoch)
        steps: list[Any] = [
            Commit(self.group, f"{topic}-{number}", max(offset, 0), fetched=True, generation=self._generation)
            for (topic, number), offset in found.items()
        ]
        self.recorder.complete(Operation(self.process, Outcome.OK, steps, invoked=invoked))
        self._to_fetch.clear()
        self._committed = {key: max(offset, 0) for key, offset in found.items()}
        self.positions = dict(self._committed)
        self._first_poll = True

    def has_committed(self, partition: tuple[str, int], offset: int) -> bool:
        """Whether it owns a partition and its group has committed this far."""
        return self._generation >= 0 and self._committed.get(partition, -1) >= offset

    async def _commit(self) -> None:
        """Commit all that was read since the last time. Raises OdradekError."""
        moved = {key: offset for key, offset in self.positions.items() if offset > self._committed[key]}
        if not moved:
            return
        connection = await self.coordinator()
        topics: dict[str, offset_commit_request.OffsetCommitRequestTopic] = {}
        for (topic, number), offset in moved.items():
            entry = topics.setdefault(topic, offset_commit_request.OffsetCommitRequestTopic(name=topic))
            entry.partitions.append(
                offset_commit_request.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=self.read_epoch((topic, number)),
                    committed_metadata="",
                )
            )
        request = offset_commit_request.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=list(topics.values()),
        )
        steps: list[Any] = [
            Commit(self.group, f"{topic}-{number}", offset, generation=self._generation)
            for (topic, number), offset in moved.items()
        ]
        operation = Operation(self.process, Outcome.INFO, steps, invoked=self.recorder.invoke())
        self._open = operation
        try:
            response = await self.request(connection, request, OffsetCommitResponse, OFFSET_COMMIT_VERSION)
            codes = {answer.error_code: None for topic in response.topics for answer in topic.partitions}
            if list(codes) == [ErrorCode.NONE]:
                operation.outcome = Outcome.OK
                self._committed.update(moved)
            elif all(code in REFUSED for code in codes):
                operation.outcome = Outcome.FAIL
            for code in codes:
                check(code, self.group)
        finally:
            self._open = None
            self.recorder.complete(operation)


def framed(message: Message, version: int) -> bytes:
    """A message of the consumer protocol behind its version."""
    return version.to_bytes(2, "big") + encode(message, version)


async def finish(world: World, members: list[Member], ends: dict[tuple[str, int], int]) -> None:
    """Let groups go on until all that is there is committed; raises nothing, and has no end where they do not."""
    for member in members:
        member.finishing = True
    for group in dict.fromkeys(member.group for member in members):
        for key, end in ends.items():
            of_group = [member for member in members if member.group == group]
            while True:
                if any(member.has_committed(key, end) for member in of_group):
                    break
                await asyncio.sleep(RETRY_S)
    for member in members:
        member.stopping = True
