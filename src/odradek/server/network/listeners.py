"""The listeners of a node: which connections are accepted, and how many.

The counters are plain ints, kept by `Connections` for all listeners together, as `max.connections` is the broker's.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.common.addresses import plain_address
from odradek.common.errors import ConfigError
from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Listener, Network, ProtocolFactory
from odradek.security.quota.arrivals import Arrivals
from odradek.server.network.connection_quotas import ConnectionQuotas, Limits
from odradek.server.network.descriptors import Descriptors
from odradek.settings.broker import BrokerSettings
from odradek.settings.formats import per_ip_overrides
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.security.sasl.listener import ListenerSasl
    from odradek.server.network.connection import Connection

UNLIMITED = INT32_MAX
# Connections that are held at one time, before they are closed: their descriptors are not the clients' to use up.
MAX_HELD = 256
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_WITH_TLS, _WITH_SASL = (1, 3), (2, 3)


@dataclass(slots=True)
class ListenerSpec:
    """One listener.

    Attributes:
        host, port: what it binds; port becomes the real one when it is bound.
        advertised: (host, port) that clients get; None gives each client the address that it dialled.
        security_protocol: Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
        scope: "broker" or "controller": which APIs are served here.
        is_internal: only nodes of the cluster talk here. `max.connections` does not keep them out: a crowd of clients
            on another listener would stop replication.
        sasl: how clients log in; None where the listener has no SASL.
        opens_with: when requests are served: with all of its scope ("" stands for it), or with "permissions", once they
            are known.
        is_removed: whether it was removed while the node runs, or has moved to another address.
    """

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    security_protocol: int = 0
    scope: str = "broker"
    is_internal: bool = False
    sasl: ListenerSasl | None = None
    opens_with: str = ""
    is_removed: bool = False

    def __post_init__(self) -> None:
        self.opens_with = self.opens_with or self.scope

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in _WITH_TLS

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in _WITH_SASL


@config
class ConnectionConfig:
    """Limits of connections."""

    max_request_bytes: int = option(
        "socket.request.max.bytes",
        default=104_857_600,
        unit="bytes",
        doc="Maximum size of a request; a larger one closes its connection.",
    )
    queued_max_request_bytes: int = option(
        "queued.max.request.bytes",
        default=-1,
        unit="bytes",
        doc="Bytes of requests that are under way at one time, over all connections; -1 is a quarter of the memory that"
        " the process may have, from 32 MiB to 1 GiB.",
    )
    idle_ms: int = option(
        "connections.max.idle.ms",
        default=600_000,
        unit="ms",
        doc="A connection that is idle for longer is closed; -1 closes none.",
    )
    max_connections: int = option(
        "max.connections",
        default=UNLIMITED,
        unit="count",
        doc="Connections that the broker takes at one time; more wait, as many as socket.listen.backlog.size."
        " Beyond what the descriptors (ulimit -n) allow they are refused.",
    )
    max_connection_creation_rate: int = option(
        "max.connection.creation.rate",
        default=UNLIMITED,
        unit="connections/s",
        doc="Connections that the broker takes per second; those that come earlier wait. quota.window.num less one"
        " times as many may come at once.",
    )
    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        default=UNLIMITED,
        unit="count",
        doc="Connections that the broker takes from one address.",
    )
    max_connections_per_ip_overrides: str = option(
        "max.connections.per.ip.overrides",
        default="",
        doc="Comma-separated address:count, in place of max.connections.per.ip; names of hosts are refused.",
    )
    send_buffer_bytes: int = option(
        "socket.send.buffer.bytes",
        default=102_400,
        unit="bytes",
        doc="SO_SNDBUF of client connections; -1 leaves the system's.",
    )
    receive_buffer_bytes: int = option(
        "socket.receive.buffer.bytes",
        default=102_400,
        unit="bytes",
        doc="SO_RCVBUF of client connections; -1 leaves the system's.",
    )
    backlog: int = option(
        "socket.listen.backlog.size", default=50, unit="count", doc="Backlog of the listening socket."
    )


async def bind(
    network: Network,
    factory: ProtocolFactory,
    name: str,
    host: str,
    port: int,
    *,
    backlog: int = 50,
    any_port: bool = False,
) -> Listener:
    """Listen.

    Args:
        name: of the setting, and of the listener in it.
        any_port: listen on a free port in place of `port`, to try the host alone.
    Raises:
        ConfigError: the host is not one of this machine's.
        OSError: the address cannot be bound for another reason.
    """
    try:
        return await network.listen(factory, host, 0 if any_port else port, backlog=backlog)
    except (OSError, ValueError) as error:
        if isinstance(error, socket.gaierror | ValueError):
            why = "there is no such host; name an address of this machine, or none for all of them"
        elif error.errno == errno.EADDRNOTAVAIL:
            why = "the address is not of this machine; name one that is, and in advertised.listeners what clients dial"
        else:
            raise
        raise ConfigError([f"{name}://{host}:{port}: {why}"]) from None


class _DiscardInput(asyncio.Protocol):
    """Discards the bytes that a connection receives before it is closed."""


@dataclass(slots=True)
class Connections:
    """All open connections of a node."""

    limits: ConnectionConfig
    descriptors: Descriptors = field(default_factory=Descriptors)
    overrides: Mapping[str, int] = field(default_factory=dict)
    accepted_count: int = 0
    refused_count: int = 0
    slow_count: int = 0
    throttled_count: int = 0
    arrivals: Arrivals = field(default_factory=lambda: Arrivals(1.0))
    connection_quotas: ConnectionQuotas = field(default_factory=lambda: ConnectionQuotas(1.0))
    _open: dict[Connection, None] = field(default_factory=dict)
    _delayed: dict[asyncio.Transport, asyncio.TimerHandle] = field(default_factory=dict)
    _by_ip: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def change_limits(self, limits: ConnectionConfig, of_listeners: Mapping[str, Limits] | None = None) -> None:
        """Go by other limits for connections to come; raises ValueError where the overrides cannot be read."""
        self.overrides = per_ip_overrides(limits.max_connections_per_ip_overrides)
        self.limits = limits
        self.connection_quotas.change_limits(limits, of_listeners or {})
        excess = len(self._open) - limits.max_connections
        if excess > 0:
            for each in sorted(self._clients(), key=lambda each: each.last_active_ms)[:excess]:
                each.close_because(f"max.connections={limits.max_connections} is less than are open")

    def delay_if_throttled(self, listener: ListenerSpec, host: str, transport: asyncio.Transport, now_ms: int) -> bool:
        """Whether an address has made its connections too fast: this one is held for a moment, and closed then."""
        if not self.arrivals.is_on or listener.is_internal:
            return False
        wait_ms = self.arrivals.wait_ms(host, now_ms)
        if not wait_ms:
            return False
        self.throttled_count += 1
        if len(self._delayed) >= MAX_HELD:
            transport.abort()
            return True
        loop = asyncio.get_running_loop()
        transport.set_protocol(_DiscardInput())
        loop.call_soon(transport.pause_reading)
        self._delayed[transport] = loop.call_later(wait_ms / 1000, self._close_delayed, transport)
        return True

    def _close_delayed(self, transport: asyncio.Transport) -> None:
        del self._delayed[transport]
        transport.abort()

    def close_delayed(self) -> None:
        """End those that are held, and those that wait."""
        self.connection_quotas.close()
        for transport, timer in tuple(self._delayed.items()):
            timer.cancel()
            self._close_delayed(transport)

    def admit(self, connection: Connection, host: str, descriptor: int) -> str | None:
        """Count a new connection, or say why it must be closed.

        Args:
            descriptor: its number; -1 where it has none.
        """
        why = self._full(descriptor)
        if why and not self._make_room(connection, why):
            self.refused_count += 1
            return why
        from_host = self._by_ip.get(host, 0)
        allowed = self.limits.max_connections_per_ip
        if self.overrides:
            allowed = self.overrides.get(plain_address(host), allowed)
        if from_host >= allowed:
            self.refused_count += 1
            return f"max.connections.per.ip={allowed} are open from {host}"
        self._open[connection] = None
        self._by_ip[host] = from_host + 1
        self.accepted_count += 1
        return None

    def _full(self, descriptor: int) -> str:
        if len(self._open) >= self.limits.max_connections:
            return f"max.connections={self.limits.max_connections} are open"
        if descriptor >= self.descriptors.clients_below:
            return f"of {self.descriptors.limit} descriptors (ulimit -n) the rest is kept for logs and peers"
        return ""

    def _make_room(self, newcomer: Connection, why: str) -> bool:
        """On an internal listener a newcomer takes the place of the client that has been idle for longest."""
        if not newcomer.listener.is_internal:
            return False
        clients = self._clients()
        if clients:
            longest_idle = min(clients, key=lambda each: each.last_active_ms)
            longest_idle.close_because(f"a node of the cluster connects, and {why}")
        return True

    def _clients(self) -> list[Connection]:
        return [each for each in self._open if not each.listener.is_internal]

    def remove(self, connection: Connection, host: str) -> None:
        """A connection that was admitted has ended."""
        if connection in self._open:
            del self._open[connection]
            left = self._by_ip[host] - 1
            if left:
                self._by_ip[host] = left
            else:
                del self._by_ip[host]


def listener_specs(settings: BrokerSettings) -> dict[str, ListenerSpec]:
    """The listeners that a node of these roles binds, by name."""
    controllers = settings.controller_listener_names
    broker_listeners = [each.name for each in settings.listeners if each.name not in controllers]
    inter_broker = settings.inter_broker_listener_name if len(broker_listeners) > 1 else None
    advertised = {each.name: (each.host, each.port) for each in settings.advertised}
    specs = {}
    early = settings.early_start_listeners
    for each in settings.listeners:
        scope = "controller" if each.name in controllers else "broker"
        if scope == "broker" or "controller" in settings.roles:
            protocol = SECURITY_PROTOCOLS[each.security_protocol]
            specs[each.name] = ListenerSpec(
                each.name,
                each.host,
                each.port,
                advertised.get(each.name),
                protocol,
                scope,
                is_internal=scope == "controller" or each.name == inter_broker,
                opens_with="permissions" if scope == "controller" and each.name not in early else "",
            )
    return specs
