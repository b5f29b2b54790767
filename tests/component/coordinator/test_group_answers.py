"""What the service of groups answers where it cannot serve: a bug, another coordinator, a protocol that is off."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from tests.component.coordinator.test_group_service import Node


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
    assert [(each.group_id, each.error_code) for each in described] == [
        ("g", ErrorCode.NOT_COORDINATOR),
        ("h", ErrorCode.NOT_COORDINATOR),
    ]


async def test_without_its_feature_the_consumer_protocol_is_not_served(node: Node) -> None:
    node.image = dataclasses.replace(node.image, features={})
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    answer = await node.service.consumer_group_heartbeat(request, Caller("client", "/h", 1))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
