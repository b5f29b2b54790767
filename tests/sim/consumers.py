"""Members of the consumer protocol (KIP-848) that copy in transactions: read, write, commit offsets, all or nothing.

A copier does what a consume-transform-produce application does with the clients of Kafka 4: it joins by heartbeats, is
given partitions and gives them up as the coordinator asks, reads each from the group's offset, writes the records to
another topic under one transaction with the new offset, and starts again from the committed offset whenever the
transaction did not come about. Some leave, some die without LeaveGroup, some pause for longer than their session.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from odradek.client.cluster import check
from odradek.client.connection import Connection
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.coordinator.group.consumer.state import CurrentAssignment
from odradek.protocol.messages import consumer_group_heartbeat_request as heartbeat
from odradek.protocol.messages import offset_fetch_request, txn_offset_commit_request
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.copiers import ATTEMPTS, LOST, Ledger, TransactionalWriter
from tests.sim.history import Outcome
from tests.sim.lost_answers import LostAnswerError
from tests.sim.readers import Reader
from tests.sim.world import World

HEARTBEAT_S = 0.3
# The number of answered heartbeats for which a member may not know its assignment: its requests may overtake each
# other.
MOST_BEHIND = 3
REBALANCE_MS = 6_000
JOINING, LEAVING = 0, -1
LEAVES, DIES, STALLS = 0.01, 0.015, 0.02
STALL_S = (0.5, 5.0)
ABORTS = 0.15
# The first versions that name members and epochs of the consumer protocol, and topics by their names.
HEARTBEAT_VERSION, OFFSET_FETCH_VERSION = 1, 9
# Error codes by which this member is none any more, or not at the epoch that it believes.
FENCED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class HeartbeatFields(Enum):
    """The optional fields that a client's heartbeats have beside the member id and the member epoch."""

    ALL = "everything, each time"
    CHANGES_AND_ALL = "what changed; everything where a heartbeat was not answered, as Apache Kafka's client does"
    CHANGES = "what changed, also behind a heartbeat whose answer was late, as librdkafka does"


class Ownership:
    """The assignments of members: in one epoch of a group a partition has one owner."""

    def __init__(self) -> None:
        self._owners: dict[tuple[tuple[str, int], int], str] = {}

    def assigned(self, member: str, epoch: int, owned: list[tuple[str, int]]) -> list[str]:
        """A member got its assignment; returns what is wrong with that."""
        wrong = []
        for key in owned:
            owner = self._owners.setdefault((key, epoch), member)
            if owner != member:
                wrong.append(f"{key[0]}-{key[1]} belongs to {owner} and to {member} in epoch {epoch}")
        return wrong


class Collector(Reader):
    """Reads partitions without writing it into the history, and keeps what it found."""

    def __init__(
        self, world: World, name: str, process: int, recorder: Recorder, partitions: list[tuple[str, int]]
    ) -> None:
        super().__init__(world, name, process, recorder, partitions=partitions, sessions=False)
        self.found: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def begin_at(self, offsets: dict[tuple[str, int], int]) -> None:
        """Read these partitions and no others, from these offsets on."""
        self.positions = dict(offsets)
        self.found.clear()

    def _process(self, response: FetchResponse, invoked: int, source: str) -> int:
        count = 0
        for topic in response.responses:
            for answer in topic.partitions:
                key = (topic.topic, answer.partition_index)
                if key not in self.positions:
                    continue
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.problem(f"{topic.topic}-{key[1]}: offset {self.positions[key]} was committed and is not there")
                if answer.error_code:
                    self._leaders.pop(key, None)
                    continue
                records: Any = answer.records
                refuses = partial(self.refuses, f"{topic.topic}-{key[1]}")
                found, self.positions[key] = self.read(key, bytes(records or b""), refuses)
                self.found.setdefault(key, []).extend(found)
                count += len(found)
        return count


class Copier(TransactionalWriter):
    """One member of the group that copies `source` to its own topic, partition by partition."""

    def __init__(
        self,
        world: World,
        name: str,
        process: int,
        recorder: Recorder,
        *,
        source: str,
        topic: str,
        partitions: int,
        group: str,
        version: int,
        ledger: Ledger,
        ownership: Ownership,
    ) -> None:
        super().__init__(
            world,
            name,
            process,
            recorder,
            topic=topic,
            partitions=partitions,
            transactional_id=name,
            version=version,
            fights=False,
            values=(),
            ledger=ledger,
        )
        self._source = source
        self._group = group
        self._ownership = ownership
        self._reader = Collector(world, f"{name}-reader", process, recorder, [])
        self._source_id: UUID | None = None
        self._lives = 0
        self._member_id = ""
        self._epoch = JOINING
        self._owned: list[tuple[str, int]] = []
        # The partitions of the last answered heartbeat; and whether the next one has all fields.
        self._said: list[tuple[str, int]] = []
        self._fields = self.random.choice(
            (HeartbeatFields.ALL, HeartbeatFields.CHANGES_AND_ALL, HeartbeatFields.CHANGES, HeartbeatFields.CHANGES)
        )
        self._says_all = False
        # Answered heartbeats since it last owned what the coordinator has assigned to it.
        self._behind = 0
        self._to_fetch = False
        self._last_heartbeat_s = -1000.0
        self._copied: dict[tuple[str, int], int] = {}
        # The offsets at which a member ends; once they are set, it makes no more trouble.
        self.ends: dict[tuple[str, int], int] | None = None
        self.done = False

    async def run(self) -> None:
        """Copy until `done`, which others say when all is copied."""
        while not self.done:
            try:
                await self._step()
            except OdradekError as error:
                await self._after(error)
        try:
            await self._leave()
        except OdradekError:
            return

    def copied(self, partition: tuple[str, int]) -> int:
        """The offset up to which it knows a partition of its own to be copied; -1 where it is not its own."""
        return self._copied.get(partition, -1)

    async def _step(self) -> None:
        if self._epoch == JOINING or self.world.loop.time() - self._last_heartbeat_s >= HEARTBEAT_S:
            await self._heartbeat()
        if self._identity[0] < 0:
            await self._init()
            self._to_fetch = True
        if self._to_fetch:
            await self._fetch_committed()
        if not self._reader.positions:
            await asyncio.sleep(0.1)
        else:
            try:
                if await self._reader.poll(max_wait_ms=100):
                    await self._copy()
            except OdradekError:
                self._reader.close_connections()
                self._to_fetch = True
                raise
        if self.ends is None:
            await self._misbehave()

    async def _after(self, error: OdradekError) -> None:
        code = error.code if isinstance(error, ApiError) else None
        if code in LOST:
            self._identity = (-1, -1)
        if code in FENCED:
            self._give_up()
        await asyncio.sleep(RETRY_S)

    async def _misbehave(self) -> None:
        chance = self.random.random()
        if chance < LEAVES:
            self.world.report(f"{self.name} leaves")
            await self._leave()
        elif chance < LEAVES + DIES:
            self.world.report(f"{self.name} dies and starts again")
            self._lives += 1
            self._identity = (-1, -1)
            self._give_up()
            await asyncio.sleep(self.random.uniform(0.1, 2.0))
        elif chance < LEAVES + DIES + STALLS:
            silent_s = self.random.uniform(*STALL_S)
            self.world.report(f"{self.name} is silent for {silent_s:.1f} s")
            await asyncio.sleep(silent_s)

    # -- membership -------------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        self._epoch = JOINING
        self._owned, self._said, self._behind = [], [], 0
        self._copied.clear()
        self._reader.begin_at({})

    async def _heartbeat(self) -> None:
        """Send what it owns, and take the assignment. Raises OdradekError."""
        if self._source_id is None:
            self._source_id = (await self.cluster.topic(self._source)).topic_id
        joins = self._epoch == JOINING
        self._member_id = f"{self.name}-{self._lives}"
        request = self._heartbeat_request(self._source_id)
        connection = await self._coordinator(self._group, 0)
        self._last_heartbeat_s = self.world.loop.time()
        try:
            answer = await self._answer(connection, request, ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION)
            check(answer.error_code, self._group)
        except OdradekError as error:
            self._says_all = self._fields is not HeartbeatFields.CHANGES or not isinstance(error, LostAnswerError)
            raise
        self._last_heartbeat_s = self.world.loop.time()
        self._says_all = self._fields is HeartbeatFields.ALL
        if request.topic_partitions is not None:
            self._said = list(self._owned)
        if not joins and answer.member_epoch < self._epoch:
            self.problem(f"member epoch {self._epoch} went back to {answer.member_epoch}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            owned = [
                (self._source, number) for each in answer.assignment.topic_partitions for number in each.partitions
            ]
            if sorted(owned) != sorted(self._owned):
                self.world.report(f"{self.name} has {sorted(owned)} in epoch {self._epoch}")
                self._owned = sorted(owned)
                self._to_fetch = True
        for wrong in self._ownership.assigned(self._member_id, self._epoch, self._owned):
            self.problem(wrong)
        self._compare_with(connection)

    def _compare_with(self, connection: Connection) -> None:
        """Check, after a heartbeat was answered, that this member owns its assignment, at most some heartbeats late."""
        machine = self.world.machines.get(self.network.process_at(connection).partition(",")[0])
        if machine is None or machine.broker is None:
            return
        try:
            shard = machine.broker.coordinator.shard(self._group)
        except ApiError:
            return
        group = shard.machine.consumers.find(self._group)
        current = group.current_of(self._member_id) if group is not None else CurrentAssignment()
        if current.member_epoch != self._epoch:
            return  # it was changed since, or taken back
        assigned = sorted((self._source, number) for _, number in current.assigned)
        self._behind = self._behind + 1 if assigned != self._owned else 0
        if self._behind == MOST_BEHIND:
            self.problem(
                f"owns {self._owned} after {MOST_BEHIND} answered heartbeats, {connection.address} gave it {assigned}"
            )

    def _heartbeat_request(self, source_id: UUID) -> heartbeat.ConsumerGroupHeartbeatRequest:
        """The next heartbeat of this member: with all fields when it joins, else with those that its client sends."""
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=self._epoch
        )
        says_all = self._says_all or self._epoch == JOINING
        if says_all:
            request.rebalance_timeout_ms, request.subscribed_topic_names = REBALANCE_MS, [self._source]
        if says_all or self._said != self._owned:
            numbers = [number for _, number in self._owned]
            owned = heartbeat.TopicPartitions(topic_id=source_id, partitions=numbers)
            request.topic_partitions = [owned] if numbers else []
        return request

    async def _leave(self) -> None:
        if self._epoch == JOINING:
            return
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=LEAVING
        )
        self._give_up()
        connection = await self._coordinator(self._group, 0)
        await self._answer(connection, request, ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION)

    async def _fetch_committed(self) -> None:
        """Begin where the group stands; an offset that a transaction may yet change is waited for."""
        if not self._owned:
            self._reader.begin_at({})
            self._to_fetch = False
            return
        numbers = [number for _, number in self._owned]
        wanted = offset_fetch_request.OffsetFetchRequestGroup(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            topics=[offset_fetch_request.OffsetFetchRequestTopics(name=self._source, partition_indexes=numbers)],
        )
        request = offset_fetch_request.OffsetFetchRequest(groups=[wanted], require_stable=True)
        connection = await self._coordinator(self._group, 0)
        response = await self._answer(connection, request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
        (group,) = response.groups
        check(group.error_code, self._group)
        offsets = {}
        for answer in (each for topic in group.topics for each in topic.partitions):
            check(answer.error_code, f"{self._source}-{answer.partition_index}")
            offsets[self._source, answer.partition_index] = max(0, answer.committed_offset)
            self._reader.heard_of_epoch((self._source, answer.partition_index), answer.committed_leader_epoch)
        for key, offset in offsets.items():
            if offset < self._copied.get(key, 0):
                self.problem(f"{key[0]}-{key[1]}: offset {self._copied[key]} was committed, then {offset}")
        self._copied = dict(offsets)
        self._reader.begin_at(offsets)
        self._to_fetch = False

    # -- copying ----------------------------------------------------------------------------------------------------

    async def _copy(self) -> None:
        """Copy all records that were read, and commit their offsets, in one transaction."""
        found = {key: records for key, records in self._reader.found.items() if records}
        ends = {key: self._reader.positions[key] for key in found}
        self._reader.found.clear()
        commit = self.ends is not None or self.random.random() >= ABORTS
        try:
            for key, records in found.items():
                await self._write_copy(key[1], [value for _, value in records])
            await self._commit_offsets(ends)
        except OdradekError as error:
            self._to_fetch = True
            if not (isinstance(error, ApiError) and error.code in LOST):
                await self._end(False)
            self._start_again()
            raise
        if commit:
            self._ledger.committing.update(value for records in found.values() for _, value in records)
        outcome = await self._end(commit)
        if outcome is Outcome.OK:
            self._copied.update((key, end) for key, end in ends.items() if key in self._copied)
            return
        self._to_fetch = True
        self._start_again()

    async def _write_copy(self, partition: int, values: list[int]) -> None:
        """One batch, again until its fate is known. Raises OdradekError."""
        if self._version == 0:
            await self._add_partition(partition)
        sequence = self._sequences.get(partition, 0)
        request = self._produce_request(partition, values, sequence)
        for attempt in range(ATTEMPTS):
            try:
                await self._produce(partition, request)
                break
            except OdradekError as error:
                if (isinstance(error, ApiError) and error.code in LOST) or attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(RETRY_S)
        self._sequences[partition] = sequence + len(values)

    async def _commit_offsets(self, ends: dict[tuple[str, int], int]) -> None:
        if self._version == 0:
            await self._add_offsets()
        partitions = [
            txn_offset_commit_request.TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=end,
                committed_leader_epoch=self._reader.read_epoch((self._source, number)),
                committed_metadata=None,
            )
            for (_, number), end in ends.items()
        ]
        request = txn_offset_commit_request.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            topics=[txn_offset_commit_request.TxnOffsetCommitRequestTopic(name=self._source, partitions=partitions)],
        )
        version = 5 if self._version == 2 else 3
        answer = await self._asked_surely(self._group, 0, request, TxnOffsetCommitResponse, version)
        for each in answer.topics[0].partitions:
            check(each.error_code, self._group)
