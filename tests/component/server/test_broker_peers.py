"""Connections to other brokers, over real sockets."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from odradek.common.real_io import RealListener, RealNetwork
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from odradek.server.network.peers import BrokerPeers
from tests.support.waiting import some_turns

OTHER = 2


async def test_a_late_connection_failure_is_no_error_of_the_loop() -> None:
    """Its exception has no taker left, and asyncio would put it into the broker's log."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    delta = MetadataDelta(MetadataImage())
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)
    delta.replay(RegisterBrokerRecord(broker_id=OTHER, broker_epoch=1, fenced=False, end_points=[endpoint]))
    image = delta.apply(1, 1)
    peers = BrokerPeers(RealNetwork(), node_id=1, listener_name="PLAINTEXT", image=lambda: image)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    asking = asyncio.create_task(peers.request(OTHER, ApiVersionsRequest(), ApiVersionsResponse))
    writer = await accepted.get()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    (connecting,) = peers._connecting.values()
    writer.close()
    await asyncio.wait([connecting])
    del connecting
    await asyncio.sleep(0)
    gc.collect()
    assert reported == [] and not peers._connecting
    await peers.close()
    RealListener(server).close()
    await some_turns()
