"""A request whose change could not be stored is answered with the error, and the group is what it was."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.metadata.features import GROUP_VERSION
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.component.coordinator.test_group_service import Node


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    node.image = dataclasses.replace(node.image, features={GROUP_VERSION: 1})
    node.service.on_elected(0, 0)
    await node.loaded()
    yield node
    await node.service.close()


async def beat(node: Node, epoch: int, member_id: str = "m") -> tuple[int, int]:
    """A heartbeat of the consumer protocol: the error, and the epoch that the member is given."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=600_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    response = await node.service.consumer_group_heartbeat(request, Caller("client", "/h", 1))
    return response.error_code, response.member_epoch


async def test_a_change_of_a_group_succeeds_only_once_it_is_written(node: Node) -> None:
    assert (await beat(node, 0))[0] == 0
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (await beat(node, -1))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is a member still"
    node.log.refuse = None
    assert (await beat(node, -1)) == (0, -1)


async def test_an_unwritten_conversion_assigns_nothing(node: Node) -> None:
    metadata = (0).to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=["t"]), 0)
    joined = await node.enter(metadata=metadata)
    assigned = (0).to_bytes(2, "big") + encode(ConsumerProtocolAssignment(), 0)
    await node.sync(joined, assignment=assigned)
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    code, epoch = await beat(node, 0)
    assert (code, epoch) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0), "it owns nothing of a group that it is not in"
    assert await node.heartbeat(joined) == 0, "the group is the classic one that it was"
    node.log.refuse = None
    code, epoch = await beat(node, 0)
    assert code == 0 and epoch > 0
