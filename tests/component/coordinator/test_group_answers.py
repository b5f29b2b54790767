"""Responses of the group coordinator when it cannot serve: after a bug, as no coordinator, with a protocol disabled."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.records import TransactionEndRecord
from odradek.metadata.features import GROUP_VERSION
from odradek.metadata.model import PartitionImage, TopicImage
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.statemachine.runtime import State
from tests.component.coordinator.test_group_service import MemoryLog, Node, Records
from tests.support.waiting import eventually_async


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    made.service.on_elected(0, 0)
    await made.loaded()
    yield made
    await made.service.close()


async def test_a_bug_in_an_operation_is_answered_and_the_next_one_is_served(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    joined = await node.enter()
    await node.sync(joined)
    with monkeypatch.context() as patched:
        patched.setattr(node.service.shards[0].machine, "join", fail)
        assert (await node.join()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await node.heartbeat(joined) == ErrorCode.NONE


async def test_a_broker_that_coordinates_no_more_says_so_of_each_group(node: Node) -> None:
    node.service.on_resigned(0)
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    assert (await node.service.leave_group(leaving)).error_code == ErrorCode.NOT_COORDINATOR
    described = await node.service.describe_consumer_groups(["g", "h"])
    assert [(each.group_id, each.error_code, each.error_message) for each in described] == [
        ("g", ErrorCode.NOT_COORDINATOR, "g is kept elsewhere"),
        ("h", ErrorCode.NOT_COORDINATOR, "h is kept elsewhere"),
    ]


async def test_without_its_feature_the_consumer_protocol_is_not_served(node: Node) -> None:
    node.image = dataclasses.replace(node.image, features={})
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    answer = await node.service.consumer_group_heartbeat(request, Caller("client", "/h", 1))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def consumer(node: Node, epoch: int, member_id: str = "m", **fields: Any) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of the consumer protocol."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 600_000, "topic_partitions": [], "subscribed_topic_names": ["t"]} | fields
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return await node.service.consumer_group_heartbeat(request, Caller("client", "/h", 1))


async def test_a_classic_member_gets_the_id_of_an_empty_consumer_group(node: Node) -> None:
    node.image = dataclasses.replace(node.image, features={GROUP_VERSION: 1})
    assert (await consumer(node, 0)).error_code == ErrorCode.NONE
    assert (await consumer(node, -1)).error_code == ErrorCode.NONE
    assert await node.commit(5) == ErrorCode.NONE
    assert [each.group_type for each in await node.service.list_groups([], [])] == ["consumer"]
    await node.sync(await node.enter())
    assert [(each.group_type, each.group_state) for each in await node.service.list_groups([], [])] == [
        ("classic", "Stable")
    ]
    assert await node.committed() == 5, "its offsets stay"


async def test_expressions_over_many_topics_are_matched_off_the_loop(node: Node) -> None:
    """Each expression is matched once, however many members subscribe with it at a time."""
    state = PartitionImage((1,), (1,), 1, 0, 0)
    topics = {f"t{number}": TopicImage(f"t{number}", UUID(int=100 + number), {0: state}) for number in range(60)}
    topics |= node.image.topics_by_name
    node.image = dataclasses.replace(
        node.image,
        features={GROUP_VERSION: 1},
        topics_by_name=topics,
        topics_by_id={each.topic_id: each for each in topics.values()},
    )
    off_loop, worked = node.service._off_loop, 0

    async def counted(work: Any) -> Any:
        nonlocal worked
        worked += 1
        return await off_loop(work)

    node.service._off_loop = cast("Any", counted)
    expression = {"subscribed_topic_names": None, "subscribed_topic_regex": "t5.*"}
    joined = await asyncio.gather(*(consumer(node, 0, name, **expression) for name in ("m", "n")))
    assert [each.error_code for each in joined] == [0, 0] and worked == 1
    assigned: set[UUID] = set()

    async def all_is_assigned() -> bool:
        for name, answer in zip(("m", "n"), joined, strict=True):
            beaten = await consumer(node, answer.member_epoch, name)
            answer.member_epoch = beaten.member_epoch
            if beaten.assignment is not None:
                assigned.update(each.topic_id for each in beaten.assignment.topic_partitions)
        return assigned == {topics[name].topic_id for name in topics if name.startswith("t5")}

    await eventually_async(all_is_assigned)
    assert worked == 1
    wrong = await consumer(node, 0, "o", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert (wrong.error_code, worked) == (ErrorCode.INVALID_REGULAR_EXPRESSION, 2)


async def test_a_partition_that_is_not_here_takes_no_transactions(node: Node) -> None:
    node.producers = cast("Any", None)
    commit = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=5, producer_epoch=0)
    for asking in (
        node.service.txn_offset_commit(commit, None),
        node.service.end_transaction(0, TransactionEndRecord(5, True, 1, 0), 2),
    ):
        with pytest.raises(ApiError, match="__consumer_offsets-0 is not here") as caught:
            await asking
        assert caught.value.code is ErrorCode.NOT_COORDINATOR


class UnreadableLog(MemoryLog):
    async def read_all(self) -> AsyncIterator[Records]:
        raise StorageError(Path("data"), "the disk is dead")
        yield []


async def test_groups_that_cannot_be_read_have_no_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.log = UnreadableLog()
    node.service.on_elected(0, 0)
    shard = node.service.shards[0]
    await node.until(lambda: shard.runtime.state is State.ENDED)
    assert (await node.join()).error_code == ErrorCode.NOT_COORDINATOR
    assert await node.service.timelines(["g"]) == []
    assert (shard._wake_up, caplog.messages) == (None, ["coordinator unloaded"])
    await node.service.close()


async def test_a_response_as_the_leadership_ends_leaves_no_timer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.sync(await node.enter())
    shard = node.service.shards[0]
    run = shard.runtime.run

    async def run_and_end(*arguments: Any, **settings: Any) -> Any:
        outcome = await run(*arguments, **settings)
        node.service.on_resigned(0)
        return outcome

    monkeypatch.setattr(shard.runtime, "run", run_and_end)
    assert await node.commit(5, "another") == ErrorCode.NONE
    assert (shard.machine.next_deadline_ms(), shard._wake_up) == (None, None)
