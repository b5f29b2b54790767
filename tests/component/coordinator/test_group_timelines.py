"""A group's timeline over the service: an event that could not be stored did not happen; the tests say why."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.records import OFFSETS_TOPIC
from odradek.coordinator.group.service import SERVED_PER_TURN
from odradek.metadata.delta import MetadataDelta
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.component.coordinator.test_group_service import Node, offsets_image
from tests.support.waiting import eventually_async


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    node.service.on_elected(0, 0)
    await node.loaded()
    yield node
    await node.service.close()


async def events_of(node: Node) -> list[dict[str, Any]]:
    timelines = await node.service.timelines(["g"])
    return [event for timeline in timelines for event in timeline["events"]]


async def test_others_have_turns_while_the_timelines_of_many_groups_are_read(node: Node) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(other())
    await asyncio.sleep(0)
    before = turns
    assert await node.service.timelines([f"g{number}" for number in range(3 * SERVED_PER_TURN)]) == []
    assert turns - before >= 2
    task.cancel()


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
async def test_an_unstored_event_is_reported_as_unstored(node: Node, code: ErrorCode) -> None:
    """A consumer whose join is refused by the log never joined; once it is through it has, in one rebalance."""
    node.image = dataclasses.replace(node.image, features={"group.version": 1})
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[]
    )
    request.subscribed_topic_names = ["t"]
    caller = Caller("c", "/h", 1)
    node.log.refuse = ApiError(code, "no")
    for _ in range(3):
        assert (await node.service.consumer_group_heartbeat(request, caller)).error_code
    reported = await events_of(node)
    assert [(each["kind"], each["member_id"], each["count"]) for each in reported] == [
        ("unstored", "m", 3),
        ("unstored", "", 3),
    ]
    assert reported[0]["reason"] == f"{code.name}: joined"
    node.log.refuse = None
    assert not (await node.service.consumer_group_heartbeat(request, caller)).error_code
    assert [each["kind"] for each in (await events_of(node))[2:]] == ["joined", "rebalance"]


async def test_a_static_member_whose_return_could_not_be_stored_did_not_return(node: Node) -> None:
    request = JoinGroupRequest(
        group_id="g",
        group_instance_id="i",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=5000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = await node.service.join_group(request, Caller("client", "/h", 9))
    given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")]
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=given)
    sync.group_instance_id = "i"
    assert not (await node.service.sync_group(sync, Caller("client", "/h", 5))).error_code
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
    assert (await node.service.join_group(request, Caller("client", "/h", 9))).error_code
    assert not [each for each in await events_of(node) if each["kind"] == "returned"]
    assert (await events_of(node))[-1]["reason"].startswith("NOT_ENOUGH_REPLICAS: returned: it takes the place of")
    node.log.refuse = None
    assert not (await node.service.join_group(request, Caller("client", "/h", 9))).error_code
    assert (await events_of(node))[-1]["kind"] == "returned"


async def test_a_timeline_begins_with_why_this_broker_keeps_the_group(node: Node) -> None:
    joined = await node.enter()
    await node.sync(joined)
    await node.restart()
    await node.loaded()
    (begun,) = await eventually_async(lambda: events_of(node))
    assert begun["kind"] == "loaded" and "has started" in begun["reason"] and "1 member," in begun["reason"]

    def led_by(broker_id: int, leader_epoch: int) -> None:
        before, node.image = node.image, offsets_image(leader=broker_id, leader_epoch=leader_epoch)
        topic = node.image.topics_by_name[OFFSETS_TOPIC]
        delta = MetadataDelta(before)
        delta.changed_partitions[topic.topic_id] = {0}
        node.service.on_metadata(delta, node.image)

    led_by(2, 2)
    led_by(1, 3)
    await node.loaded()
    (moved,) = await eventually_async(lambda: events_of(node))
    assert moved["kind"] == "loaded" and "it took over from broker 2" in moved["reason"]
    assert "leader epoch 3" in moved["reason"]


async def test_a_join_whose_commit_is_not_known_in_time_is_in_the_timeline() -> None:
    """The client is a member of the group, although it got an error."""
    node = Node(commit_timeout_ms=50)
    node.image = dataclasses.replace(node.image, features={"group.version": 1})
    node.service.on_elected(0, 0)
    await node.loaded()
    node.log.committed.clear()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = await node.service.consumer_group_heartbeat(request, Caller("c", "/h", 1))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [event["kind"] for event in await events_of(node)][:1] == ["joined"]
    node.log.committed.set()
    await node.service.close()
