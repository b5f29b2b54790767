"""The coordinator's service over a log in memory: loading, leadership, parked requests, writes that fail."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, OdradekError, StorageError
from odradek.common.real_io import RealClock, RealDisk
from odradek.coordinator.batches import decode_batches, encode_batches
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.records import GROUP_RECORDS, OFFSETS_TOPIC, CoordinatorRecord
from odradek.coordinator.group.service import GroupCoordinator
from odradek.log.producer_state import ProducerState
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import BrokerImage, Endpoint, PartitionImage, TopicImage
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.statemachine.runtime import State
from tests.support.waiting import PATIENCE_S

# The codec knows records of many types, and no type that they share.
RECORDS: Any = GROUP_RECORDS
Records = Sequence[tuple[int, CoordinatorRecord]]


NO_TOPIC_ID = UUID(int=0)


class MemoryLog:
    """A machine log that keeps its batches' bytes; it can refuse writes, hold commits back and load slowly."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.committed = asyncio.Event()
        self.committed.set()
        self.readable = asyncio.Event()
        self.readable.set()
        self.refuse: OdradekError | None = None

    @property
    def committed_offset(self) -> int:
        return self.end_offset if self.committed.is_set() else 0

    def prepare(self, records: Sequence[CoordinatorRecord], *, atomic: bool) -> Generator[None, None, list[bytes]]:
        return encode_batches(GROUP_RECORDS, records, atomic=atomic, max_batch_bytes=100_000, now_ms=1)

    def append(self, groups: Sequence[list[bytes]]) -> int:
        if self.refuse is not None:
            raise self.refuse
        for batch in (batch for group in groups for batch in group):
            self.batches.append(batch)
            self.end_offset += decode_batches(RECORDS, batch)[1]
        return self.end_offset

    async def wait_committed(self, end_offset: int) -> None:
        await self.committed.wait()

    async def read_all(self) -> AsyncIterator[Records]:
        await self.readable.wait()
        base_offset = 0
        for batch in self.batches:
            records, count = decode_batches(RECORDS, batch)
            yield [(base_offset + offset, record) for offset, record in records]
            base_offset += count


def offsets_image(partitions: int = 1, leader: int = 1, leader_epoch: int = 0) -> MetadataImage:
    image = PartitionImage((leader,), (leader,), leader, leader_epoch, 0)
    topic = TopicImage(OFFSETS_TOPIC, UUID(int=9), dict.fromkeys(range(partitions), image))
    broker = BrokerImage(1, 0, UUID(int=1), (Endpoint("PLAINTEXT", "host", 9, 0),), fenced=False)
    return MetadataImage(
        offset=1, topics_by_name={OFFSETS_TOPIC: topic}, topics_by_id={topic.topic_id: topic}, brokers={1: broker}
    )


class Node:
    """One service with one log; `restart` makes the next service over the same log."""

    def __init__(self, *, commit_timeout_ms: int = 60_000) -> None:
        self.log = MemoryLog()
        self.commit_timeout_ms = commit_timeout_ms
        self.producers = ProducerState()
        self.image = offsets_image()
        self.created: list[tuple[str, int, int, Mapping[str, str]]] = []
        self.on_create: Callable[[], Awaitable[None]] | None = None
        self.service = self._new()

    def _new(self) -> GroupCoordinator:
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            min_session_timeout_ms=50,
            offsets_commit_timeout_ms=self.commit_timeout_ms,
            offsets_topic_replication_factor=1,
        )

        async def create_topic(name: str, count: int, factor: int, overrides: Mapping[str, str]) -> None:
            self.created.append((name, count, factor, overrides))
            if self.on_create is not None:
                await self.on_create()

        return GroupCoordinator(
            config,
            node_id=1,
            clock=RealClock(),
            random=random.Random(1),
            make_log=lambda partition_id, leader_epoch: self.log,
            image=lambda: self.image,
            create_topic=create_topic,
            run_blocking=RealDisk().run_blocking,
            producers_of=lambda partition_id: self.producers,
        )

    async def restart(self) -> None:
        await self.service.close()
        self.service = self._new()
        self.service.on_elected(0, 1)
        await self.until(lambda: self.service.shards[0].runtime.state is not State.NEW)

    async def loaded(self) -> None:
        """Wait until its shard answers."""
        await self.until(lambda: self.service.shards[0].runtime.active)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)

    async def hears(self, ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
        """Ask until this is the answer."""
        async with asyncio.timeout(PATIENCE_S):
            while await ask() != wanted:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)

    async def join(
        self, member_id: str = "", *, version: int = 9, session_ms: int = 600_000, metadata: bytes = b"m"
    ) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=600_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        return await self.service.join_group(request, Caller("client", "/h", version))

    async def enter(self, **settings: Any) -> JoinGroupResponse:
        return await self.join((await self.join(**settings)).member_id, **settings)

    async def sync(self, joined: JoinGroupResponse, assignment: bytes = b"mine") -> SyncGroupResponse:
        given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
        request = SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=given
        )
        return await self.service.sync_group(request, Caller("client", "/h", 5))

    async def heartbeat(self, joined: JoinGroupResponse) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        return (await self.service.heartbeat(request)).error_code

    async def commit(self, offset: int, group: str = "g", topic_id: UUID = NO_TOPIC_ID) -> int:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[part])
        response = await self.service.offset_commit(OffsetCommitRequest(group_id=group, topics=[topic]), 9)
        return response.topics[0].partitions[0].error_code

    async def state(self) -> str:
        return (await self.service.describe_groups(["g"], 5))[0].group_state

    async def committed(self) -> int:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = await self.service.offset_fetch(OffsetFetchRequestGroup(group_id="g", topics=topics), False)
        return -100 - group.error_code if group.error_code else group.topics[0].partitions[0].committed_offset


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    node.service.on_elected(0, 0)
    await node.loaded()
    yield node
    node.log.committed.set()
    node.log.readable.set()
    await node.service.close()


async def test_a_member_joins_syncs_beats_commits_and_leaves(node: Node) -> None:
    joined = await node.enter()
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert (await node.sync(joined)).assignment == b"mine"
    assert await node.heartbeat(joined) == ErrorCode.NONE
    left = await node.service.leave_group(
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
    )
    assert left.members[0].error_code == ErrorCode.NONE
    assert await node.commit(5) == ErrorCode.NONE
    assert await node.committed() == 5


async def test_acknowledged_changes_survive_a_restart(node: Node) -> None:
    joined = await node.enter()
    await node.sync(joined)
    await node.commit(7, "another")
    await node.restart()
    await node.loaded()
    assert await node.heartbeat(joined) == ErrorCode.NONE
    assert (await node.sync(joined)).assignment == b"mine"
    listed = await node.service.list_groups([], [])
    assert sorted(each.group_id for each in listed) == ["another", "g"]


async def test_two_members_share_a_rebalance(node: Node) -> None:
    first = await node.enter()
    await node.sync(first)
    entering = asyncio.ensure_future(node.enter())
    await node.hears(lambda: node.heartbeat(first), ErrorCode.REBALANCE_IN_PROGRESS)
    again, second = await asyncio.gather(node.join(first.member_id), entering)
    assert again.generation_id == second.generation_id == 2
    assert {member.member_id for member in again.members} == {first.member_id, second.member_id}


async def test_a_client_that_goes_away_does_not_take_the_others_answers_with_it(node: Node) -> None:
    first = await node.enter()
    await node.sync(first)
    entering = asyncio.ensure_future(node.enter())
    await node.hears(lambda: node.heartbeat(first), ErrorCode.REBALANCE_IN_PROGRESS)
    rejoining = asyncio.ensure_future(node.join(first.member_id))
    await asyncio.sleep(0)
    rejoining.cancel()
    assert (await asyncio.wait_for(entering, PATIENCE_S)).generation_id == 2


async def test_a_silent_member_is_removed_by_the_clock(node: Node) -> None:
    session_s = 0.2
    joined = await beats_for(node, 2 * session_s, session_s)
    await node.hears(node.state, "Empty")
    assert await node.heartbeat(joined) == ErrorCode.UNKNOWN_MEMBER_ID


async def beats_for(node: Node, seconds: float, session_s: float) -> JoinGroupResponse:
    """A member that was heard of within its session all the time; begins again where this process stood still."""
    for _ in range(100):
        joined = await node.enter(session_ms=round(session_s * 1000))
        began = heard = time.monotonic()
        await node.sync(joined)
        while heard < began + seconds:
            await asyncio.sleep(session_s / 10)
            asked = time.monotonic()
            code = await node.heartbeat(joined)
            if time.monotonic() - heard >= session_s:
                break
            assert code == ErrorCode.NONE
            heard = asked
        else:
            return joined
    raise AssertionError("this process pauses again and again")


@pytest.mark.parametrize(
    ("group_id", "session_ms", "code"),
    [("", 10_000, 24), ("g", 49, 26), ("g", 1_800_001, 26), ("g", -1, 26)],
)
async def test_bad_joins_are_refused(node: Node, group_id: str, session_ms: int, code: int) -> None:
    request = JoinGroupRequest(group_id=group_id, session_timeout_ms=session_ms, protocol_type="consumer")
    assert (await node.service.join_group(request, Caller("c", "/h", 9))).error_code == code


async def test_heartbeats_succeed_while_a_shard_loads(node: Node) -> None:
    joined = await node.enter()
    await node.sync(joined)
    node.log.readable.clear()
    await node.restart()
    assert await node.heartbeat(joined) == ErrorCode.NONE
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await node.join(joined.member_id)).error_code == loading
    assert (await node.sync(joined)).error_code == loading
    assert await node.committed() == -100 - loading
    assert (await node.service.describe_groups(["g"], 5))[0].error_code == loading
    assert (await node.service.delete_groups(["g"]))[0].error_code == loading
    for call in (node.commit(1), node.service.list_groups([], [])):
        with pytest.raises(ApiError) as caught:
            await call
        assert caught.value.code == loading
    node.log.readable.set()
    await node.loaded()
    assert (await node.sync(joined)).assignment == b"mine"


async def test_a_shard_that_loses_its_partition_sends_everyone_away(node: Node) -> None:
    """Redpanda 3ed7492fd5: a group's state was kept after the leadership was lost."""
    first = await node.enter()
    await node.sync(first)
    entering = asyncio.ensure_future(node.enter())
    await node.hears(lambda: node.heartbeat(first), ErrorCode.REBALANCE_IN_PROGRESS)
    node.service.on_resigned(0)
    assert (await entering).error_code == ErrorCode.NOT_COORDINATOR
    assert await node.heartbeat(first) == ErrorCode.NOT_COORDINATOR
    assert await node.committed() == -100 - ErrorCode.NOT_COORDINATOR
    assert await node.service.list_groups([], []) == []


async def test_a_log_whose_disk_dies_sends_everyone_away(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """A write notices it before the metadata has another leader."""
    first = await node.enter()
    await node.sync(first)
    entering = asyncio.ensure_future(node.enter())
    await node.hears(lambda: node.heartbeat(first), ErrorCode.REBALANCE_IN_PROGRESS)
    node.log.refuse = StorageError(Path("data"), "the disk is dead")
    with pytest.raises(ApiError):
        await node.commit(1, group="other")
    async with asyncio.timeout(PATIENCE_S):
        assert (await entering).error_code == ErrorCode.NOT_COORDINATOR
    assert "coordinator unloaded" in caplog.messages


async def test_a_shard_has_one_timer_however_often_its_next_deadline_moves(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def noted(delay: float, callback: Callable[..., Any], *arguments: Any, **settings: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *arguments, **settings)
        if callback == node.service.shards[0]._on_wake_up:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_later", noted)
    for seconds in (300, 200, 100, 150):
        await node.join(session_ms=seconds * 1000)
    assert [timer.cancelled() for timer in timers] == [True, True, False], "a later deadline needs none"
    assert sorted((timer.when() for timer in timers), reverse=True) == [timer.when() for timer in timers]
    assert timers[-1].when() <= loop.time() + 100


async def test_requests_are_answered_after_their_commit(node: Node) -> None:
    node.log.committed.clear()
    committing = asyncio.ensure_future(node.commit(9))
    await asyncio.sleep(0.01)
    fetching = asyncio.ensure_future(node.committed())
    await asyncio.sleep(0.02)
    assert not committing.done()
    assert not fetching.done(), "a fetch must not tell of a commit that may yet be lost"
    node.log.committed.set()
    assert (await committing, await fetching) == (0, 9)


async def test_a_commit_that_is_not_replicated_in_time_is_not_acknowledged() -> None:
    node = Node(commit_timeout_ms=50)
    node.service.on_elected(0, 0)
    await node.loaded()
    node.log.committed.clear()
    with pytest.raises(ApiError) as caught:
        await node.commit(9)
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await node.service.close()


async def test_a_refused_write_is_taken_back(node: Node) -> None:
    await node.commit(1)
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ApiError) as caught:
        await node.commit(2)
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await node.committed() == 1
    node.log.refuse = None
    assert await node.commit(3) == 0
    assert await node.committed() == 3


async def test_an_assignment_that_cannot_be_written_is_not_given_out(node: Node) -> None:
    joined = await node.enter()
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    refused = await node.sync(joined)
    assert (refused.error_code, refused.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")
    assert await node.heartbeat(joined) == ErrorCode.REBALANCE_IN_PROGRESS
    node.log.refuse = None
    again = await node.join(joined.member_id)
    assert (await node.sync(again)).assignment == b"mine"


async def test_the_offsets_topic_is_made_by_the_first_question_and_once(node: Node) -> None:
    made, node.image = node.image, MetadataImage()

    async def appear() -> None:
        await asyncio.sleep(0.03)
        node.image = made

    node.on_create = appear
    found = await asyncio.gather(*(node.service.find_coordinator(f"g{n}", "PLAINTEXT") for n in range(5)))
    assert {(broker_id, endpoint.host) for broker_id, endpoint in found} == {(1, "host")}
    overrides = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert node.created == [(OFFSETS_TOPIC, 50, 1, overrides)]
    with pytest.raises(ApiError) as caught:
        await node.service.find_coordinator("g", "NO_SUCH_LISTENER")
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_topic_that_cannot_be_made_leaves_the_coordinator_unavailable(node: Node) -> None:
    node.image = MetadataImage()

    async def fail() -> None:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "1 broker")

    node.on_create = fail
    with pytest.raises(ApiError) as caught:
        await node.service.find_coordinator("g", "PLAINTEXT")
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_shards_follow_the_metadata(node: Node) -> None:
    topic_id = UUID(int=9)
    await node.commit(4)

    def publish(image: MetadataImage) -> None:
        delta = MetadataDelta(node.image)
        delta.changed_partitions = {topic_id: {0}}
        node.image = image
        node.service.on_metadata(delta, image)

    publish(offsets_image(leader=2, leader_epoch=1))
    assert await node.committed() == -100 - ErrorCode.NOT_COORDINATOR
    publish(offsets_image(leader=1, leader_epoch=2))
    await node.loaded()
    assert await node.committed() == 4


async def test_offsets_of_a_deleted_topic_go_and_those_of_a_recreated_one_stay(node: Node) -> None:
    old, new = UUID(int=1), UUID(int=2)
    deleted: Any = SimpleNamespace(changed_partitions={}, deleted_topics={old: TopicImage("t", old)})
    await node.commit(4, topic_id=old)
    node.service.on_metadata(deleted, node.image)
    await node.hears(node.committed, -1)
    await node.commit(5, topic_id=new)
    node.service.on_metadata(deleted, node.image)
    await asyncio.sleep(0.02)
    assert await node.committed() == 5


async def test_the_timeline_has_refused_transactions_and_leaves(node: Node) -> None:
    """A copier that was replaced comes back, in the name of its static member and of a generation that is over."""
    joined = await node.enter()
    await node.sync(joined)
    zombie = Caller("zombie", "/10.0.0.7", 4)
    wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=5,
        producer_epoch=0,
        generation_id_or_member_epoch=joined.generation_id - 1,
        member_id=joined.member_id,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[wanted])],
    )
    with pytest.raises(ApiError) as caught:
        await node.service.txn_offset_commit(request, None, zombie)
    assert caught.value.code == ErrorCode.ILLEGAL_GENERATION
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="unknown")])
    answer = await node.service.leave_group(leave, zombie)
    assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (timeline,) = await node.service.timelines(["g"])
    refused = [each for each in timeline["events"] if each["kind"] == "refused"]
    assert [(each["member_id"], each["reason"].split(":")[0]) for each in refused] == [
        (joined.member_id, "ILLEGAL_GENERATION (TxnOffsetCommit)"),
        ("unknown", "UNKNOWN_MEMBER_ID (LeaveGroup)"),
    ]
    assert {(each["client_id"], each["client_host"]) for each in refused} == {("zombie", "/10.0.0.7")}

    async def verify(partition_id: int) -> ErrorCode:
        return ErrorCode.INVALID_PRODUCER_EPOCH

    with pytest.raises(ApiError) as caught:
        await node.service.txn_offset_commit(request, verify, zombie)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    (timeline,) = await node.service.timelines(["g"])
    fenced = timeline["events"][-1]
    assert (fenced["kind"], fenced["client_id"], fenced["client_host"]) == ("fenced", "zombie", "/10.0.0.7")
    assert fenced["reason"].startswith("INVALID_PRODUCER_EPOCH (TxnOffsetCommit)")


@pytest.mark.parametrize("what", ["describe", "describe consumers", "delete"])
async def test_one_request_for_a_hundred_thousand_groups_lets_others_be_answered(node: Node, what: str) -> None:
    """Each id is looked at once, and between two slices of them another client gets its answers."""
    joined = await node.enter()
    await node.sync(joined)
    ids = [f"invented-{number}" for number in range(100_000)]
    asks: dict[str, Callable[[], Awaitable[Any]]] = {
        "describe": lambda: node.service.describe_groups(ids, 5),
        "describe consumers": lambda: node.service.describe_consumer_groups(ids),
        "delete": lambda: node.service.delete_groups(ids),
    }
    large = asyncio.ensure_future(asks[what]())
    answered = 0
    while not large.done():
        assert await node.heartbeat(joined) == ErrorCode.NONE
        answered += 1
    assert [each.group_id for each in large.result()] == ids
    assert answered > 100


async def answered_until(node: Node, joined: JoinGroupResponse, large: Awaitable[Any]) -> tuple[Any, int]:
    """The response to a large request, and how many heartbeats of a member were served meanwhile."""
    outcome = asyncio.ensure_future(large)
    answered = 0
    while not outcome.done():
        assert await node.heartbeat(joined) == ErrorCode.NONE
        answered += 1
    return outcome.result(), answered


async def test_when_many_thousand_leave_others_are_answered(node: Node) -> None:
    joined = await node.enter()
    await node.sync(joined)
    wanted = [MemberIdentity(member_id=f"invented-{number}") for number in range(20_000)]
    request = LeaveGroupRequest(group_id="g", members=[*wanted, MemberIdentity(member_id=joined.member_id)])
    leave = asyncio.ensure_future(node.service.leave_group(request, Caller("client", "/h", 5)))
    answered = 0
    while not leave.done() and await node.heartbeat(joined) == ErrorCode.NONE:
        answered += 1
    answer = await leave
    assert [each.member_id for each in answer.members] == [each.member_id for each in request.members]
    assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 20_000 + [ErrorCode.NONE]
    assert answered >= 10


async def test_while_many_thousand_offsets_are_deleted_others_are_answered(node: Node) -> None:
    joined = await node.enter()
    await node.sync(joined)
    count, kept = 5000, 8
    for name, begin in [("u", 0), *(("t", begin) for begin in range(0, count, 500))]:
        parts = [OffsetCommitRequestPartition(partition_index=begin + each, committed_offset=7) for each in range(500)]
        topic = OffsetCommitRequestTopic(name=name, partitions=parts if name == "t" else parts[:1])
        await node.service.offset_commit(OffsetCommitRequest(group_id="simple", topics=[topic]), 9)
    asked = [OffsetDeleteRequestPartition(partition_index=each) for each in range(2 * count) if each != kept]
    request = OffsetDeleteRequest(
        group_id="simple",
        topics=[
            OffsetDeleteRequestTopic(name="t", partitions=asked),
            OffsetDeleteRequestTopic(name="empty"),
            OffsetDeleteRequestTopic(name="t", partitions=asked[:1]),
        ],
    )
    answer, answered = await answered_until(node, joined, node.service.offset_delete(request))
    assert [each.name for each in answer.topics] == ["t", "empty", "t"]
    assert [each.partition_index for each in answer.topics[0].partitions] == [each.partition_index for each in asked]
    assert [len(each.partitions) for each in answer.topics] == [len(asked), 0, 1]
    assert not any(each.error_code for topic in answer.topics for each in topic.partitions)
    group = await node.service.offset_fetch(OffsetFetchRequestGroup(group_id="simple", topics=None), False)
    left = {(topic.name, each.partition_index) for topic in group.topics for each in topic.partitions}
    assert left == {("t", kept), ("u", 0)}
    assert answered >= 5


async def test_a_heartbeat_without_a_group_is_refused(node: Node) -> None:
    """INVALID_REQUEST, as of everything else that is wrong with the request itself, and before its shard is sought."""
    node.image = dataclasses.replace(node.image, features={"group.version": 1})
    request = ConsumerGroupHeartbeatRequest(group_id="", member_id="m", member_epoch=0, rebalance_timeout_ms=1000)
    for _ in range(2):
        answer = await node.service.consumer_group_heartbeat(request, Caller("c", "/h", 1))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "GroupId can't be empty."
        node.service.on_resigned(0)
