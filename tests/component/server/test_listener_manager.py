"""Listeners of a node on real sockets: those that cannot be bound at once, and changes that follow each other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from odradek.common.errors import ConfigError
from odradek.common.ports import Listener, Network, ProtocolFactory
from odradek.common.real_io import RealNetwork
from odradek.server.network import listener_manager
from odradek.server.network.listener_manager import ListenerManager
from odradek.server.network.listeners import ListenerSpec
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.resources import BrokerLayers, with_dynamic
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually_async, some_turns

NODE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@localhost:3",
    "listeners": "IN://127.0.0.1:0",
    "inter.broker.listener.name": "IN",
    "listener.security.protocol.map": "IN:PLAINTEXT,NEW:PLAINTEXT,MORE:PLAINTEXT,CONTROLLER:PLAINTEXT",
}

LIMIT = {"listener.name.in.max.connections": "9"}


class Followed:
    """A manager with what it has reported: the names of removed listeners, and those that served after each change."""

    def __init__(self, network: Network) -> None:
        self.file = resolve(NODE, Sources({}, lambda path: ""))
        self.removed: list[str] = []
        self.served: list[list[str]] = []
        self.manager = ListenerManager(
            self.file,
            network,
            self._protocol,
            backlog=lambda: 10,
            on_removed=lambda spec: self.removed.append(spec.name),
            on_changed=lambda: self.served.append(list(self.manager.specs)),
        )

    def _protocol(self, spec: ListenerSpec) -> partial[asyncio.Protocol]:
        return partial(asyncio.Protocol)

    def stored(self, *more: str, **given: str) -> BrokerSettings:
        listeners = {"listeners": ",".join(["IN://127.0.0.1:0", *more])}
        return with_dynamic(self.file, BrokerLayers(listeners | given, {}))

    def change(self, *more: str) -> tuple[BrokerSettings, dict[str, str]]:
        """The settings after a change of the listeners alone, and the change."""
        settings = self.stored(*more)
        return settings, {"listeners": settings.explicit["listeners"]}


@asynccontextmanager
async def followed(network: Network | None = None) -> AsyncIterator[Followed]:
    made = Followed(network or RealNetwork())
    await made.manager.start()
    try:
        yield made
    finally:
        await made.manager.stop()
        made.manager.close()


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


async def test_a_listener_is_bound_once_its_port_is_free(
    taken: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restart the port of a stored listener may be in use by another process for a while."""
    monkeypatch.setattr(listener_manager, "RETRY_S", 0.01)
    port = taken.getsockname()[1]
    new = f"NEW://127.0.0.1:{port}"
    async with followed() as node:
        node.manager.change(node.stored(new))
        await eventually_async(lambda: len(node.served) > 3)
        assert set(map(tuple, node.served)) == {("IN",)}
        assert [each.getMessage() for each in caplog.records if "cannot be bound" in each.getMessage()] == [
            "listeners cannot be bound: trying again every 0 s"
        ]
        await node.manager.check(node.stored(new, **LIMIT), LIMIT)
        await node.manager.check(*node.change(new, f"MORE://127.0.0.1:{free_port()}"))
        taken.close()
        await eventually_async(lambda: node.served[-1] == ["IN", "NEW"])
        socket.create_connection(("127.0.0.1", port), 10).close()
    assert node.removed == []


async def test_a_listener_without_an_address_to_go_to_stays(taken: socket.socket) -> None:
    port = free_port()
    async with followed() as node:
        node.manager.change(node.stored(f"NEW://127.0.0.1:{port}"))
        await eventually_async(lambda: node.served == [["IN", "NEW"]])
        for elsewhere in (f"127.0.0.1:{taken.getsockname()[1]}", f"192.0.2.1:{port}"):
            before = len(node.served)
            node.manager.change(node.stored(f"NEW://{elsewhere}"))
            await eventually_async(lambda before=before: len(node.served) > before)
            assert node.removed == []
            socket.create_connection(("127.0.0.1", port), 10).close()
        node.manager.change(node.stored())
        await eventually_async(lambda: node.removed == ["NEW"])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)


async def test_two_changes_at_once_end_as_the_second_says() -> None:
    first, second = free_port(), free_port()
    async with followed() as node:
        node.manager.change(node.stored(f"NEW://127.0.0.1:{first}"))
        node.manager.change(node.stored(f"NEW://127.0.0.1:{second}"))
        await eventually_async(lambda: bool(node.served) and node.manager.specs["NEW"].port == second)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", first), 10)
        assert node.manager.specs["IN"].is_internal, "there is another listener for clients"
        protocols = {"listener.security.protocol.map": "IN:PLAINTEXT,NEW:SSL,CONTROLLER:PLAINTEXT"}
        node.manager.change(node.stored(f"NEW://127.0.0.1:{second}", **protocols))
        await eventually_async(lambda: node.removed == ["NEW"] and node.served[-1] == ["IN", "NEW"])
        assert node.manager.specs["NEW"].has_tls, "as if it was removed and added again"


async def test_listeners_exchange_their_ports(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that starts again may have to apply two stored changes at once."""
    first, second = free_port(), free_port()
    async with followed() as node:
        node.manager.change(node.stored(f"NEW://127.0.0.1:{first}", f"MORE://127.0.0.1:{second}"))
        await eventually_async(lambda: node.served == [["IN", "NEW", "MORE"]])
        exchanged = node.stored(f"NEW://127.0.0.1:{second}", f"MORE://127.0.0.1:{first}")
        await node.manager.check(exchanged, exchanged.explicit)
        node.manager.change(exchanged)
        ports = [("NEW", second), ("MORE", first)]
        await eventually_async(lambda: [(each.name, each.port) for each in node.manager.specs.values()][1:] == ports)
    assert not [each for each in caplog.records if "cannot be bound" in each.getMessage()]


async def test_the_listeners_keep_the_order_of_the_settings() -> None:
    """The first listener is the bootstrap address, and a controller connects to it to check that the process lives."""
    async with followed() as node:
        new = f"NEW://127.0.0.1:{free_port()}"
        node.manager.change(node.stored(new))
        await eventually_async(lambda: node.served == [["IN", "NEW"]])
        moved = {"listeners": f"IN://127.0.0.1:{free_port()},{new}"}
        node.manager.change(with_dynamic(node.file, BrokerLayers(moved, {})))
        await eventually_async(lambda: node.removed == ["IN"] and node.served[-1] == ["IN", "NEW"])


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
async def test_a_host_that_is_no_name_is_refused(host: str) -> None:
    async with followed() as node:
        with pytest.raises(ConfigError, match="there is no such host"):
            await node.manager.check(*node.change(f"NEW://{host}:1"))


class ClientAtOnce(RealNetwork):
    """A client connects to each address as soon as it is bound."""

    def __init__(self) -> None:
        self.clients: list[socket.socket] = []

    async def listen(self, factory: ProtocolFactory, host: str, port: int, **options: Any) -> Listener:
        listener = await super().listen(factory, host, port, **options)
        self.clients.append(socket.create_connection((host, listener.port), 10))
        await some_turns()
        return listener


async def test_a_change_is_checked_while_the_one_before_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    added = [f"NEW://127.0.0.1:{free_port()}", f"MORE://127.0.0.1:{free_port()}"]
    network = ClientAtOnce()
    async with followed(network) as node:
        checks = [asyncio.ensure_future(node.manager.check(*node.change(*added))) for _ in range(2)]
        node.manager.change(node.stored(added[0]))
        await asyncio.gather(*checks)
        await eventually_async(lambda: node.served == [["IN", "NEW"]])
    for client in network.clients:
        client.close()
    assert not [each for each in caplog.records if "cannot be bound" in each.getMessage()]


async def test_a_client_that_comes_amid_a_trial_does_not_wait() -> None:
    network = ClientAtOnce()
    async with followed(network) as node:
        await node.manager.check(*node.change(f"NEW://127.0.0.1:{free_port()}"))
        served, tried = network.clients
        with served, tried:
            assert await asyncio.to_thread(tried.recv, 1) == b""


async def test_a_stored_value_that_breaks_a_rule_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with followed() as node:
        settings = node.stored(f"NEW://127.0.0.1:{free_port()}")
        node.manager.change(settings)
        await eventually_async(lambda: bool(node.served))
        for listeners in ("NEW://127.0.0.1:1", "NEW://127.0.0.1:1"):
            invalid = with_dynamic(node.file, BrokerLayers({"listeners": listeners, **LIMIT}, {}))
            found = node.manager.change(invalid)
            assert found.listeners == settings.listeners, "their limits and certificates stay in force"
            await node.manager.check(invalid, LIMIT)
        assert list(node.manager.specs) == ["IN", "NEW"]
    assert len([each for each in caplog.records if "the present ones remain" in each.getMessage()]) == 1
