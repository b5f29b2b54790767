"""From an API key to its handler: the table of handlers made ready for connections, with a counter for each API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ErrorCode
from odradek.common.ports import Timer, no_timer
from odradek.protocol.apis import API, ApiKey, api_name
from odradek.protocol.declare import Message, parse_versions
from odradek.security.quota.arrivals import Arrivals
from odradek.security.quota.config import QuotaConfig
from odradek.server.authorization import request_check
from odradek.server.network.connection_quotas import ConnectionQuotas, Limits
from odradek.server.network.descriptors import Descriptors
from odradek.server.network.listeners import Connections
from odradek.server.network.request_memory import LOGIN_SHARE, RequestMemory, capacity_bytes
from odradek.server.network.request_quotas import RequestQuotas
from odradek.server.network.request_reader import BufferPool, new_scratch
from odradek.server.network.request_times import SAMPLED_EVERY, RouteTimes
from odradek.server.network.slow_requests import SlowRequests
from odradek.server.network.tls_acceptor import Handshakes

if TYPE_CHECKING:
    from odradek.common.ports import MachineLimits
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.server.context import BrokerServices, RequestContext
    from odradek.server.network.connection import Connection
    from odradek.server.network.listeners import ConnectionConfig, ListenerSpec

# Of these, one in so many is timed.
_FREQUENT = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
NOT_FLEXIBLE = 2**15
# The requests under way when a listener is removed have so long. Without any, a client could hold its place for days.
LAST_RESPONSES_S = 30.0


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Both inclusive."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Handler:
    """One row of the table of handlers.

    Attributes:
        handle: `handle(context, request)`. A plain function decides at once and returns the response, None (no answer),
            or a `PendingResponse`; a coroutine function has its connection to itself until it returns.
        min_version, max_version: inclusive, those that are served.
        advertised_min: the minimum in ApiVersions instead of min_version, for Produce alone.
        overlapping: a coroutine that leaves its connection to the requests behind it, for what nodes of the cluster
            send on behalf of many: one that waits for a commit must not hold up the others. Answers stay in order.
        listeners: the kinds of listeners that serve it: "broker", "controller".
    """

    api_key: ApiKey
    handle: Callable[[RequestContext, Any], Any]
    min_version: int
    max_version: int
    listeners: frozenset[str] = frozenset({"broker"})
    advertised_min: int | None = None
    overlapping: bool = False


@dataclass(slots=True, eq=False)
class Route:
    """A handler, what it needs to be called, and what was counted."""

    name: str
    versions: VersionRange
    advertised_min: int
    flexible_since: int
    handle: Callable[[RequestContext, Any], Any]
    request: type[Message]
    response: type[Message]
    overlapping: bool = False
    request_count: int = 0
    error_count: int = 0
    request_bytes: int = 0
    times: RouteTimes = field(default_factory=RouteTimes)

    def error_response(self, version: int, code: ErrorCode, message: str) -> Message | None:
        """A response that says only that all failed, or None where this version has no field for that."""
        names = {spec.name for spec in self.response.FIELDS if version in parse_versions(spec.versions)}
        if "error_code" not in names:
            return None
        answer = self.response()
        fields: Any = answer
        fields.error_code = code
        if "error_message" in names and message:
            fields.error_message = message
        return answer


def _checked(
    handle: Callable[[RequestContext, Any], Any], check: Callable[[RequestContext, Any], None]
) -> Callable[[RequestContext, Any], Any]:
    def handle_if_allowed(context: RequestContext, request: Any) -> Any:
        check(context, request)
        return handle(context, request)

    return handle_if_allowed


def make_routes(handlers: Iterable[Handler], scope: str) -> dict[int, Route]:
    """The handlers of one kind of listener, by API key."""
    routes: dict[int, Route] = {}
    for handler in handlers:
        if scope not in handler.listeners:
            continue
        assert handler.api_key not in routes, f"two handlers of {handler.api_key.name}"
        spec = API[handler.api_key]
        last = spec.max_version + spec.latest_unstable
        assert spec.min_version <= handler.min_version <= handler.max_version <= last, handler
        advertised_min = handler.min_version if handler.advertised_min is None else handler.advertised_min
        check = request_check(handler.api_key)
        routes[int(handler.api_key)] = Route(
            api_name(handler.api_key),
            VersionRange(handler.min_version, handler.max_version),
            advertised_min,
            spec.flexible_since if spec.flexible_since >= 0 else NOT_FLEXIBLE,
            handler.handle if check is None else _checked(handler.handle, check),
            spec.request,
            spec.response,
            handler.overlapping,
            times=RouteTimes(SAMPLED_EVERY if handler.api_key in _FREQUENT else 1),
        )
    return routes


@dataclass(slots=True)
class Dispatcher:
    """The state that all connections of a node share; `is_timed`: whether requests of later connections are timed."""

    services: BrokerServices
    config: ConnectionConfig
    connections: Connections
    routes: dict[str, dict[int, Route]]
    quotas: RequestQuotas = field(default_factory=lambda: RequestQuotas(QuotaConfig()))
    scratch: memoryview = field(default_factory=new_scratch)
    buffer_pool: BufferPool = field(default_factory=BufferPool)
    memory: RequestMemory = field(default_factory=RequestMemory)
    # For requests before a login, so that clients with a login never wait for those without.
    login_memory: RequestMemory = field(default_factory=RequestMemory)
    # Ordered, as all that is walked over: the same run must take the same way.
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    open_scopes: set[str] = field(default_factory=set)
    silent_scopes: set[str] = field(default_factory=set)
    newest_connection: int = -1
    is_timed: bool = False
    handshakes: Handshakes = field(default_factory=Handshakes)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed quotas."""
        if image.client_quotas is not self.quotas.current:
            self.quotas.change_quotas(image.client_quotas)
            self.connections.arrivals.change_quotas(image.client_quotas)

    def number_connection(self) -> int:
        """The number of a new connection; they rise with time."""
        self.newest_connection += 1
        return self.newest_connection

    def start_serving(self, scope: str) -> None:
        """Serve requests on one kind of listener; those that came earlier have waited."""
        self.open_scopes.add(scope)
        for connection in self.connections:
            connection.resume()

    def time_requests(self, slow_ms: int) -> None:
        """Measure the times of requests: of all of them if those slower than `slow_ms` are logged (0: none is)."""
        self.is_timed = True
        for by_key in self.routes.values() if slow_ms > 0 else ():
            for key, route in by_key.items():
                route.times = RouteTimes(slow=SlowRequests(ApiKey(key), route.name, slow_ms))

    def serves(self, scope: str) -> bool:
        """Whether requests on one kind of listener are begun."""
        return scope in self.open_scopes

    def pause_listeners(self, scope: str) -> None:
        """Begin no request of one kind of listener and send no answer, until `disconnect_all`."""
        self.open_scopes.discard(scope)
        self.silent_scopes.add(scope)

    def disconnect_all(self, scope: str) -> None:
        """End all connections of one kind of listener; those that come later are served."""
        for connection in self.connections:
            if connection.listener.scope == scope:
                connection.close()
        self.silent_scopes.discard(scope)
        self.open_scopes.add(scope)

    def disconnect_listener(self, listener: ListenerSpec) -> None:
        """End the connections of a listener that was removed.

        Those with requests under way end after the responses, at the latest after LAST_RESPONSES_S: a client chooses
        how long its fetch waits.
        """
        listener.is_removed = True
        self.handshakes.end_all(listener)
        self.connections.connection_quotas.close_waiting(listener)
        for connection in self._connections_of(listener):
            connection.close_after_responses()
            connection.advance()
        if left := self._connections_of(listener):
            asyncio.get_running_loop().call_later(LAST_RESPONSES_S, _close_all, left)

    def _connections_of(self, listener: ListenerSpec) -> list[Connection]:
        return [each for each in self.connections if each.listener is listener]

    def change_limits(self, config: ConnectionConfig, of_listeners: Mapping[str, Limits] | None = None) -> None:
        """Use other limits: those of connections at once, that of requests with each new connection.

        Args:
            of_listeners: those that one listener has by itself, by its name.

        Raises:
            ValueError: max.connections.per.ip.overrides cannot be read; nothing is changed.
        """
        self.connections.change_limits(config, of_listeners)
        self.config = config

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a handler that awaits; `close` ends those that are left."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def unsupported_version_response(self, context: RequestContext) -> Message | None:
        """The response in version 0 to a request of an unknown version; ApiVersions alone has one (KIP-511)."""
        if context.api_key != ApiKey.API_VERSIONS:
            return None
        from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

        route = self.routes[context.connection.listener.scope][ApiKey.API_VERSIONS]
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=route.advertised_min, max_version=route.versions.last)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])

    def tune_socket(self, sock: socket.socket) -> None:
        """Kafka's socket settings on an accepted connection."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.config.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.config.send_buffer_bytes)
        if self.config.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.config.receive_buffer_bytes)

    def close_idle(self, now_ms: int) -> int:
        """Close connections that neither sent nor took a byte for connections.max.idle.ms; returns how many.

        A negative connections.max.idle.ms closes none.
        """
        if self.config.idle_ms < 0:
            return 0
        limit = now_ms - self.config.idle_ms
        idle = [c for c in self.connections if c.idle_since_ms(now_ms) <= limit]
        for connection in idle:
            connection.close()
        return len(idle)

    def close_slow(self, now_ms: int) -> int:
        """Close connections whose request comes too slowly; returns how many. To be called about once a second."""
        for memory in (self.memory, self.login_memory):
            memory.update_pressure(now_ms, self.config.idle_ms)
        slow = [(connection, why) for connection in self.connections if (why := connection.slowness(now_ms))]
        for connection, why in slow:
            connection.close_because(why)
        self.connections.slow_count += len(slow)
        return len(slow)

    async def close(self) -> None:
        """End all connections and the handlers that still wait; connections that come later are refused."""
        self.connections.close_delayed()
        for connection in self.connections:
            connection.close()
        await asyncio.sleep(0)  # a task that is cancelled before it begins never awaits its handler, which warns
        tasks = tuple(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _close_all(connections: Iterable[Connection]) -> None:
    for each in connections:
        each.close()


def make_dispatcher(
    services: BrokerServices,
    config: ConnectionConfig,
    routes: dict[str, dict[int, Route]],
    machine: MachineLimits,
    quotas: QuotaConfig | None = None,
    timer: Timer = no_timer,
) -> Dispatcher:
    """The dispatcher of a node, within its configured limits and those of the machine.

    Raises:
        ValueError: max.connections.per.ip.overrides cannot be read.
    """
    quotas = quotas or QuotaConfig()
    arrivals, connection_quotas = Arrivals(quotas.saved_s), ConnectionQuotas(quotas.saved_s)
    connections = Connections(
        config, Descriptors(machine.descriptors), arrivals=arrivals, connection_quotas=connection_quotas
    )
    connections.change_limits(config)
    capacity = capacity_bytes(config.queued_max_request_bytes, machine.memory_bytes)
    return Dispatcher(
        services,
        config,
        connections,
        routes,
        RequestQuotas(quotas, timer),
        memory=RequestMemory(capacity),
        login_memory=RequestMemory(capacity // LOGIN_SHARE),
    )
