"""The limits of connections, at one time and per second, for all listeners and for one (KIP-402, 612)."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.server.network.connection_quotas import ConnectionQuotas
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import Calls
from tests.support.clients.wire import Wire
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

BACKLOG = 30
TIMES_AT_ONCE = 2  # quota.window.num less one


class LimitedNode:
    """A node of three listeners for clients and one for the controller."""

    def __init__(self, directory: Path) -> None:
        names = ("INNER", "SECURED", "OTHER", "PLAINTEXT", "CONTROLLER")
        self.ports = {name: free_port() for name in names}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = {name: "SSL" if name == "SECURED" else "PLAINTEXT" for name in names}
        settings = {
            "log.dirs": directory / "data",
            "listeners": listeners,
            "inter.broker.listener.name": "INNER",
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "socket.listen.backlog.size": BACKLOG,
            "quota.window.num": 1 + TIMES_AT_ONCE,
            "listener.name.other.max.connections": 1,
            "listener.name.secured.max.connections": 1,
            **Certificates(directory / "certificates").server("listener.name.secured."),
        }
        self.thread = NodeThread(1, NetworkLinks())
        self.thread.begin(None, [f"{key}={value}" for key, value in settings.items()]).result(120)

    @property
    def connection_quotas(self) -> ConnectionQuotas:
        return self.thread.broker.dispatcher.connections.connection_quotas

    def connect(self, listener: str = "PLAINTEXT") -> Calls:
        return Calls(self.ports[listener])

    def change(self, key: str, value: int | None) -> None:
        """Change a setting of all brokers, by a listener that no limit of theirs bounds."""
        config = AlterableConfig(name=key, config_operation=1 if value is None else 0, value=str(value))
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        with self.connect("INNER") as calls:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert answer.responses[0].error_code == 0, answer


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedNode]:
    made = LimitedNode(tmp_path_factory.mktemp("node"))
    try:
        yield made
    finally:
        made.thread.stop()


@pytest.fixture(autouse=True)
def all_have_left(node: LimitedNode) -> Iterator[None]:
    yield
    eventually(lambda: not node.connection_quotas.waiting_count and not len(node.thread.broker.dispatcher.connections))


@contextlib.contextmanager
def limited(node: LimitedNode, key: str, value: int) -> Iterator[None]:
    node.change(key, value)
    try:
        yield
    finally:
        node.change(key, None)


ASKED = ApiVersionsRequest(client_software_name="a", client_software_version="1")


def is_served(wire: Wire) -> bool:
    """Whether the node answers, be it late; otherwise it has closed the connection."""
    try:
        return bool(wire.request(ApiKey.API_VERSIONS, 3, ASKED).error_code == 0)
    except ConnectionError:
        return False


def test_a_connection_beyond_the_limit_waits_until_one_leaves(node: LimitedNode) -> None:
    with limited(node, "max.connections", 2), contextlib.ExitStack() as stack:
        first, second, third, fourth = (stack.enter_context(node.connect()) for _ in range(4))
        assert is_served(first)
        assert is_served(second)
        third.send(ApiKey.API_VERSIONS, 3, ASKED)
        eventually(lambda: node.connection_quotas.waiting_count == 2)
        with node.connect("INNER") as between_brokers:
            assert is_served(between_brokers), "the limit of the broker is not that of its peers"
        # A peer takes the place of the client that is idle for longest, and leaves it to the next.
        assert first.is_closed_by_peer()
        assert third.receive(ApiKey.API_VERSIONS, 3).error_code == 0
        assert is_served(third)
        second.close()
        assert is_served(fourth)


def test_a_lowered_limit_closes_those_that_are_idle(node: LimitedNode) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(node.connect()) for _ in range(4)]
        assert all(is_served(each) for each in crowd)
        with limited(node, "max.connections", 3):
            closed = [each for each in crowd[:2] if each.is_closed_by_peer()]
            assert len(closed) == 2, "the connection that changed the limit is one of three"


def test_more_than_the_backlog_are_refused(node: LimitedNode) -> None:
    with limited(node, "max.connections", 0), contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(node.connect()) for _ in range(BACKLOG + 2)]
        assert [each.is_closed_by_peer() for each in crowd[BACKLOG:]] == [True, True]
        assert node.connection_quotas.waiting_count == BACKLOG
        node.change("max.connections", 100)
        assert all(is_served(each) for each in crowd[:BACKLOG])


def test_connections_of_a_broker_come_no_faster_than_its_rate(node: LimitedNode) -> None:
    rate, late = 8, 4
    with limited(node, "max.connection.creation.rate", rate), contextlib.ExitStack() as stack:
        waited, began = node.connection_quotas.waited_count, time.monotonic()
        crowd = [stack.enter_context(node.connect()) for _ in range(rate * TIMES_AT_ONCE + late)]
        assert all(is_served(each) for each in crowd)
        assert time.monotonic() - began > (late - 1) / rate
        assert node.connection_quotas.waited_count > waited
        with node.connect("INNER") as between_brokers:
            assert is_served(between_brokers)


def test_one_listener_has_limits_of_its_own(node: LimitedNode) -> None:
    with node.connect("OTHER") as first, node.connect("OTHER") as second, node.connect() as elsewhere:
        assert is_served(first)
        eventually(lambda: node.connection_quotas.waiting_count == 1)
        assert is_served(elsewhere)
        with limited(node, "listener.name.other.max.connections", 2):
            assert is_served(second)
    rate = "listener.name.plaintext.max.connection.creation.rate"
    with limited(node, rate, 0), node.connect() as waits, node.connect("OTHER") as elsewhere:
        assert is_served(elsewhere)
        eventually(lambda: node.connection_quotas.waiting_count == 1)
        node.change(rate, 100)
        assert is_served(waits)


def test_a_handshake_that_fails_gives_its_place_back(node: LimitedNode) -> None:
    with node.connect("SECURED") as slow, node.connect("SECURED") as waits:
        eventually(lambda: node.connection_quotas.waiting_count == 1)
        for wire in (slow, waits):
            wire.socket.sendall(b"no handshake" * 100)
            assert wire.is_closed_by_peer()


def test_clients_that_leave_before_a_handshake_take_no_place_along(node: LimitedNode) -> None:
    """A reset may come between the connection and the first step of its handshake."""
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", node.ports["SECURED"])) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with node.connect("SECURED") as wire:
        wire.socket.sendall(b"no handshake" * 100)
        assert wire.is_closed_by_peer()
    eventually(lambda: node.connection_quotas.waiting_count == 0)
