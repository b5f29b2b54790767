"""The way to the active controller, over a real one in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.client.controller_channel import ControllerChannel
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealClock, RealNetwork
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.server.controller_gateway import ControllerGateway
from tests.support.nodes.quorum_node import QuorumNode


async def test_others_have_their_turn_while_a_ready_controller_refuses(tmp_path: Path) -> None:
    """Its machine has ended, and this node leads the quorum still: nothing says when to ask again."""
    node = await QuorumNode(tmp_path).start()
    channel = ControllerChannel(
        RealNetwork(), lambda: None, client_id="test", connect_timeout_ms=1000, request_timeout_ms=1000
    )
    gateway = ControllerGateway(node.service, channel, channel, RealClock(), lambda: node.driver.leads)
    await node.service.stop()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    counting = asyncio.get_running_loop().create_task(count_turns())
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as refused:
        await gateway.request(AllocateProducerIdsRequest(broker_id=1), AllocateProducerIdsResponse, timeout_ms=300)
    had = turns
    counting.cancel()
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert had > 0
    await node.stop()
