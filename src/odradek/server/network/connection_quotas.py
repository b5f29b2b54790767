"""The limits of connections of a node and of each listener, at one time and per second (KIP-402, 612).

A connection that comes too early, or when all places are taken, waits in the order of arrival, unread, until it may
begin. In Kafka it waits in the backlog of the socket; here the loop accepts all connections, so as many wait as the
backlog holds, and more are refused. The limits of the broker do not hold for the inter-broker listener.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from odradek.common.numbers import INT32_MAX
from odradek.common.token_bucket import UNLIMITED, TokenBucket
from odradek.settings.listeners import listener_values
from odradek.settings.table import Scope, table

if TYPE_CHECKING:
    from odradek.server.network.listeners import ConnectionConfig, ListenerSpec
    from odradek.settings.broker import BrokerSettings

MAX_CONNECTIONS, CREATION_RATE = "max.connections", "max.connection.creation.rate"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of connections at one time, and per second."""

    max_connections: int = INT32_MAX
    creation_rate: int = INT32_MAX


_NONE = Limits()


def limits_of_listeners(settings: BrokerSettings) -> dict[str, Limits]:
    """The limits of single listeners, set as `listener.name.<name>.max.connections`."""
    found = {}
    for each in settings.listeners:
        own = listener_values(each.name, settings.explicit)
        if MAX_CONNECTIONS in own or CREATION_RATE in own:
            found[each.name] = Limits(_count(own, MAX_CONNECTIONS), _count(own, CREATION_RATE))
    return found


def _count(own: Mapping[str, str], key: str) -> int:
    value = table(Scope.BROKER)[key].parse(own[key]) if key in own else INT32_MAX
    assert isinstance(value, int)
    return value


class PendingConnection(Protocol):
    """A connection that was just made."""

    listener: ListenerSpec

    def place_granted(self) -> bool:
        """Admit the connection; returns whether it uses the place."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(slots=True)
class _ListenerQueue:
    """The connections of one listener: how many it has, and those that wait.

    Attributes:
        is_internal: as of the last connection: it changes as other listeners are added and removed.
    """

    is_internal: bool
    bucket: TokenBucket
    limits: Limits = _NONE
    open_count: int = 0
    waiting: deque[PendingConnection] = field(default_factory=deque)
    timer: asyncio.Handle | None = None


class ConnectionQuotas:
    """The queues in which new connections of all listeners wait.

    Attributes:
        waited_count: how many connections had to wait so far.
    """

    def __init__(self, burst_s: float) -> None:
        """`burst_s`: how many seconds' worth of a rate may be saved up."""
        self._burst_s = burst_s
        self._limits = _NONE
        self._backlog = 0
        self._of_listeners: Mapping[str, Limits] = {}
        self._bucket = TokenBucket(burst_s=burst_s)
        self._queues: dict[str, _ListenerQueue] = {}
        self._open_count = 0
        self._is_closed = False
        self.waited_count = 0

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def change_limits(self, config: ConnectionConfig, of_listeners: Mapping[str, Limits]) -> None:
        """Use other limits; connections that wait may begin by them."""
        self._limits = Limits(config.max_connections, config.max_connection_creation_rate)
        self._of_listeners, self._backlog = of_listeners, config.backlog
        if self._queues:
            now_ms = _now_ms()
            _change_rate(self._bucket, self._limits, now_ms)
            for name, queue in self._queues.items():
                queue.limits = of_listeners.get(name, _NONE)
                _change_rate(queue.bucket, queue.limits, now_ms)
                self._schedule_admission(queue)

    def acquire_place(self, listener: ListenerSpec, connection: PendingConnection) -> str:
        """Admit a connection, now or later. Returns "", or why it is refused.

        A connection that was admitted must `release_place`; one that ends before must `cancel_wait`.
        """
        if self._is_closed:
            return "the node stops"
        if listener.is_removed:
            return "the listener was removed"  # the system had accepted the connection before
        queue = self._queues.get(listener.name) or self._add_listener(listener)
        queue.is_internal = listener.is_internal
        if not queue.waiting and self._wait_ms(queue) == 0:
            self._admit(queue, connection)
            return ""
        if len(queue.waiting) >= self._backlog:
            return f"{self._backlog} connections wait already, as {MAX_CONNECTIONS} or {CREATION_RATE} ask for"
        queue.waiting.append(connection)
        self.waited_count += 1
        self._schedule_admission(queue)
        return ""

    def cancel_wait(self, listener: ListenerSpec, connection: PendingConnection) -> None:
        """A connection without a place has ended, whether it waited for one or not."""
        queue = self._queues.get(listener.name)
        if queue is not None and connection in queue.waiting:
            queue.waiting.remove(connection)

    def release_place(self, listener: ListenerSpec) -> None:
        """A connection that had a place has ended."""
        queue = self._queues[listener.name]
        queue.open_count -= 1
        self._open_count -= 1
        for each in self._queues.values():
            self._schedule_admission(each)

    def close_waiting(self, listener: ListenerSpec) -> None:
        """Close the connections that wait at a listener which was removed."""
        queue = self._queues.get(listener.name)
        for each in [] if queue is None else [each for each in queue.waiting if each.listener is listener]:
            self.cancel_wait(listener, each)
            each.close()

    def close(self) -> None:
        """Close the connections that wait, and refuse others: an accepted one arrives a turn of the loop later."""
        self._is_closed = True
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
            while queue.waiting:
                queue.waiting.popleft().close()

    def _add_listener(self, listener: ListenerSpec) -> _ListenerQueue:
        queue = _ListenerQueue(listener.is_internal, TokenBucket(burst_s=self._burst_s))
        queue.limits = self._of_listeners.get(listener.name, _NONE)
        _change_rate(queue.bucket, queue.limits, _now_ms())
        _change_rate(self._bucket, self._limits, _now_ms())
        self._queues[listener.name] = queue
        return queue

    def _wait_ms(self, queue: _ListenerQueue) -> int | None:
        """The wait of the next connection; None if it must wait for a place."""
        if queue.open_count >= queue.limits.max_connections:
            return None
        if not queue.is_internal and self._open_count >= self._limits.max_connections:
            return None
        now_ms, longest_ms = _now_ms(), 0
        for bucket in (queue.bucket,) if queue.is_internal else (queue.bucket, self._bucket):
            wait_ms = bucket.ready_in_ms(now_ms)
            if wait_ms is None:
                return None
            longest_ms = max(longest_ms, wait_ms)
        return longest_ms

    def _admit(self, queue: _ListenerQueue, connection: PendingConnection) -> None:
        queue.bucket.spend(1, _now_ms())
        self._bucket.spend(1, _now_ms())
        if connection.place_granted():
            queue.open_count += 1
            self._open_count += 1

    def _schedule_admission(self, queue: _ListenerQueue) -> None:
        if queue.waiting:
            if queue.timer is not None:
                queue.timer.cancel()
            queue.timer = asyncio.get_running_loop().call_soon(self._admit_waiting, queue)

    def _admit_waiting(self, queue: _ListenerQueue) -> None:
        queue.timer = None
        while queue.waiting:
            wait_ms = self._wait_ms(queue)
            if wait_ms is None:
                return
            if wait_ms:
                queue.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._admit_waiting, queue)
                return
            self._admit(queue, queue.waiting.popleft())


def _change_rate(bucket: TokenBucket, limits: Limits, now_ms: int) -> None:
    rate = limits.creation_rate
    bucket.change_rate(UNLIMITED if rate >= INT32_MAX else rate, now_ms)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
