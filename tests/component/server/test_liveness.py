"""Probes of a broker whose connection ended, against real listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest_asyncio

from odradek.common.real_io import RealListener, RealNetwork
from odradek.metadata.model import BrokerImage, Endpoint
from odradek.server.lifecycle.liveness import BrokerLiveness
from tests.support.waiting import some_turns

BROKER = (2, 7)


class Controller:
    """An active controller that records which brokers were fenced."""

    active = True

    def __init__(self) -> None:
        self.fenced: list[tuple[int, int]] = []

    async def fence_dead(self, broker_id: int, broker_epoch: int) -> None:
        self.fenced.append((broker_id, broker_epoch))


class Scene:
    """A broker's listener and the controller's view of it."""

    def __init__(self, server: asyncio.Server) -> None:
        self.server = server
        port = server.sockets[0].getsockname()[1]
        image = BrokerImage(*BROKER, uuid4(), (Endpoint("PLAINTEXT", "127.0.0.1", port, 0),), fenced=False)
        publisher: Any = SimpleNamespace(image=SimpleNamespace(brokers={BROKER[0]: image}))
        self.controller = Controller()
        service: Any = self.controller
        self.liveness = BrokerLiveness(RealNetwork(), service, publisher, 1)

    def connection(self) -> Any:
        """A connection that carries a heartbeat of the broker."""
        connection = SimpleNamespace(on_lost=None)
        self.liveness.heartbeat_received(connection, *BROKER)  # type: ignore[arg-type]  # a stand-in for a Connection
        return connection

    async def probed(self) -> list[tuple[int, int]]:
        """The fenced brokers, once all probes have ended."""
        await asyncio.gather(*self.liveness._probes)
        return self.controller.fenced


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    scene = Scene(server)
    yield scene
    await scene.liveness.stop()
    RealListener(server).close()
    await some_turns()


async def test_a_listener_that_closes_later_than_the_connection_is_noticed(scene: Scene) -> None:
    scene.connection().on_lost()
    asyncio.get_running_loop().call_later(0.5, RealListener(scene.server).close)
    assert await scene.probed() == [BROKER]


async def test_a_broker_that_accepts_connections_is_not_fenced(scene: Scene) -> None:
    scene.connection().on_lost()
    assert await scene.probed() == []


async def test_a_heartbeat_over_another_connection_ends_the_probes(scene: Scene) -> None:
    scene.connection().on_lost()
    await asyncio.sleep(0)
    scene.connection()
    assert await scene.probed() == []
    RealListener(scene.server).close()
    await some_turns()
    scene.connection().on_lost()
    assert await scene.probed() == [BROKER]
