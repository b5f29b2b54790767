"""Connections of a listener that is removed, or becomes internal, while the node runs."""

from __future__ import annotations

import pytest

from odradek.server.network import dispatch
from odradek.server.network.listeners import ConnectionConfig
from tests.support.nodes.listener import Client, ScriptedListener
from tests.support.waiting import eventually_async


async def test_connections_end_with_it_also_those_that_wait_or_come_late() -> None:
    async with ScriptedListener(ConnectionConfig(max_connections=1)) as listener:
        first = await listener.client()
        await first.beat(1, "wait")
        await eventually_async(lambda: listener.begun == [1])
        connection_quotas = listener.dispatcher.connections.connection_quotas
        waits = await listener.client()
        await waits.beat(2)
        await eventually_async(lambda: connection_quotas.waiting_count == 1)
        listener.dispatcher.disconnect_listener(listener.spec)
        assert await waits.is_closed()
        late = Client(listener.spec.port)  # as the system had accepted it before
        assert await late.is_closed()
        listener.finish(1)
        assert await first.numbers(1) == [1]
        assert await first.is_closed()
        assert listener.begun == [1] and connection_quotas.waiting_count == 0
        for client in (first, waits, late):
            client.close()


async def test_a_request_that_waits_long_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LAST_RESPONSES_S", 0.01)
    async with ScriptedListener() as listener:
        client = await listener.client()
        await client.beat(1, "wait")
        await eventually_async(lambda: 1 in listener.waits)
        listener.dispatcher.disconnect_listener(listener.spec)
        assert await client.is_closed()
        client.close()


async def test_the_limit_of_the_broker_does_not_hold_once_a_listener_is_internal() -> None:
    """The only listener of a broker is for brokers and clients, until there is another one for clients."""
    async with ScriptedListener(ConnectionConfig(max_connections=1)) as listener:
        first = await listener.client()
        await first.beat(1)
        assert await first.numbers(1) == [1]
        listener.spec.is_internal = True
        peer = await listener.client()
        await peer.beat(2)
        assert await peer.numbers(1) == [2]
        first.close()
        peer.close()
