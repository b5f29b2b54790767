"""The channel to the controller: it finds the leader, keeps one connection, and leaves a former leader at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from odradek.client.controller_channel import ControllerChannel
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealNetwork
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from tests.support.nodes.listener import ScriptedListener
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually_async


class Leader(NamedTuple):
    node_id: int
    endpoint: tuple[str, int] | None


class Quorum:
    """The active controller, as the test says."""

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.channel = ControllerChannel(
            RealNetwork(), lambda: self.leader, client_id="t", connect_timeout_ms=60_000, request_timeout_ms=60_000
        )

    def elect(self, node_id: int, port: int) -> None:
        self.leader = Leader(node_id, ("127.0.0.1", port))
        self.channel.leader_changed()

    async def beat(self, number: int, what: str = "now", timeout_ms: int = 60_000) -> int:
        request = HeartbeatRequest(group_id=what, generation_id=number)
        answer = await self.channel.request(request, HeartbeatResponse, timeout_ms=timeout_ms)
        return answer.throttle_time_ms


@pytest.fixture
async def quorum() -> AsyncIterator[Quorum]:
    made = Quorum()
    yield made
    await made.channel.close()
    await asyncio.sleep(0)


async def refused(quorum: Quorum) -> str:
    with pytest.raises(ApiError) as caught:
        await quorum.beat(1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    return str(caught.value)


async def test_a_request_without_a_leader_fails(quorum: Quorum) -> None:
    assert "no active controller is known" in await refused(quorum)
    quorum.leader = Leader(1, None)
    assert "no active controller is known" in await refused(quorum)


async def test_a_leader_that_cannot_be_reached(quorum: Quorum) -> None:
    quorum.elect(1, free_port())
    assert "does not answer" in await refused(quorum)


async def test_all_share_one_connection(quorum: Quorum) -> None:
    async with ScriptedListener() as listener:
        quorum.elect(1, listener.spec.port)
        assert await asyncio.gather(*(quorum.beat(number) for number in range(20))) == list(range(20))
        assert await quorum.beat(20) == 20
        assert len(listener.connections) == 1


async def test_a_connection_that_ended_is_made_again(quorum: Quorum) -> None:
    async with ScriptedListener() as listener:
        quorum.elect(1, listener.spec.port)
        await quorum.beat(1)
        waiting = asyncio.ensure_future(quorum.beat(2, "wait"))
        await eventually_async(lambda: 2 in listener.begun)
        listener.connections[0].close()
        with pytest.raises(ApiError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert await quorum.beat(3) == 3


async def test_a_new_leader_ends_the_wait_for_the_old_one(quorum: Quorum) -> None:
    async with ScriptedListener() as old, ScriptedListener() as new:
        quorum.elect(1, old.spec.port)
        waiting = asyncio.ensure_future(quorum.beat(1, "wait", timeout_ms=60_000))
        await eventually_async(lambda: 1 in old.begun)
        pausing = asyncio.ensure_future(quorum.channel.pause())
        await asyncio.sleep(0)
        quorum.elect(2, new.spec.port)
        with pytest.raises(ApiError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        await pausing
        assert await quorum.beat(2) == 2
        assert new.begun == [2]


async def test_the_same_leader_again_changes_nothing(quorum: Quorum) -> None:
    async with ScriptedListener() as listener:
        quorum.elect(1, listener.spec.port)
        waiting = asyncio.ensure_future(quorum.beat(1, "wait"))
        await eventually_async(lambda: 1 in listener.waits)
        quorum.elect(1, listener.spec.port)
        listener.finish(1)
        assert await waiting == 1


async def test_a_leader_that_changes_during_the_connection_attempt(quorum: Quorum) -> None:
    async with ScriptedListener(is_open=False) as slow, ScriptedListener() as new:
        quorum.elect(1, slow.spec.port)
        waiting = asyncio.ensure_future(quorum.beat(1))
        await eventually_async(lambda: bool(slow.connections))
        quorum.elect(2, new.spec.port)
        with pytest.raises(ApiError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert await quorum.beat(2) == 2


async def test_a_request_that_the_controller_does_not_know(quorum: Quorum) -> None:
    async with ScriptedListener() as listener:
        quorum.elect(1, listener.spec.port)
        with pytest.raises(ApiError) as caught:
            await quorum.channel.request(ListGroupsRequest(), ListGroupsResponse, timeout_ms=60_000)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_a_closed_channel_sends_no_request(quorum: Quorum) -> None:
    async with ScriptedListener() as listener:
        quorum.elect(1, listener.spec.port)
        await quorum.beat(1)
        await quorum.channel.close()
        assert "no active controller is known" in await refused(quorum)
