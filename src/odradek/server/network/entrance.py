"""How many connections a node and each listener have at one time, and how many they take per second (KIP-402, 612).

What comes too early, or when all places are taken, waits in the order in which it came, unread, until it may begin. In
Kafka it waits in the backlog of the socket; here the loop accepts whatever comes, so as many wait as the backlog holds,
and more are refused. The limits of the broker do not hold for the listener by which brokers talk to each other.
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
    """How many connections at one time, and per second."""

    max_connections: int = INT32_MAX
    creation_rate: int = INT32_MAX


_NONE = Limits()


def limits_of_listeners(settings: BrokerSettings) -> dict[str, Limits]:
    """What is set for each listener by itself, as `listener.name.<name>.max.connections`."""
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


class Newcomer(Protocol):
    """A connection that was just made."""

    def enter(self) -> bool:
        """There is a place for it; whether it takes the place."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(slots=True)
class _Way:
    """The connections of one listener: how many it has, and those that wait."""

    is_internal: bool
    bucket: TokenBucket
    limits: Limits = _NONE
    open_count: int = 0
    waiting: deque[Newcomer] = field(default_factory=deque)
    timer: asyncio.Handle | None = None


class Entrance:
    """Where new connections of all listeners wait.

    Attributes:
        waited_count: how many had to.
    """

    def __init__(self, burst_s: float) -> None:
        """`burst_s`: how many seconds' worth of a rate may be saved up."""
        self._burst_s = burst_s
        self._limits = _NONE
        self._backlog = 0
        self._of_listeners: Mapping[str, Limits] = {}
        self._bucket = TokenBucket(burst_s=burst_s)
        self._ways: dict[str, _Way] = {}
        self._open_count = 0
        self._is_closed = False
        self.waited_count = 0

    @property
    def waiting_count(self) -> int:
        """How many connections wait."""
        return sum(len(way.waiting) for way in self._ways.values())

    def change_limits(self, config: ConnectionConfig, of_listeners: Mapping[str, Limits]) -> None:
        """Go by other limits; who waits may begin by them."""
        self._limits = Limits(config.max_connections, config.max_connection_creation_rate)
        self._of_listeners, self._backlog = of_listeners, config.backlog
        if self._ways:
            now_ms = _now_ms()
            _change_rate(self._bucket, self._limits, now_ms)
            for name, way in self._ways.items():
                way.limits = of_listeners.get(name, _NONE)
                _change_rate(way.bucket, way.limits, now_ms)
                self._let_in_soon(way)

    def take_place(self, listener: ListenerSpec, newcomer: Newcomer) -> str:
        """A connection comes and enters, now or later; or why it is refused.

        One that took its place must `leave`; one that ends before must `wait_no_longer`.
        """
        if self._is_closed:
            return "the node stops"
        way = self._ways.get(listener.name) or self._open_way(listener)
        if not way.waiting and self._wait_ms(way) == 0:
            self._enter(way, newcomer)
            return ""
        if len(way.waiting) >= self._backlog:
            return f"{self._backlog} connections wait already, as {MAX_CONNECTIONS} or {CREATION_RATE} ask for"
        way.waiting.append(newcomer)
        self.waited_count += 1
        self._let_in_soon(way)
        return ""

    def wait_no_longer(self, listener: ListenerSpec, newcomer: Newcomer) -> None:
        """A connection without a place has ended, whether it waited for one or not."""
        way = self._ways.get(listener.name)
        if way is not None and newcomer in way.waiting:
            way.waiting.remove(newcomer)

    def leave(self, listener: ListenerSpec) -> None:
        """A connection that had a place has ended."""
        way = self._ways[listener.name]
        way.open_count -= 1
        self._open_count -= 1
        for each in self._ways.values():
            self._let_in_soon(each)

    def close(self) -> None:
        """End those that wait, and let none in any more: one that was accepted comes a turn of the loop later."""
        self._is_closed = True
        for way in self._ways.values():
            if way.timer is not None:
                way.timer.cancel()
            while way.waiting:
                way.waiting.popleft().close()

    def _open_way(self, listener: ListenerSpec) -> _Way:
        way = _Way(listener.is_internal, TokenBucket(burst_s=self._burst_s))
        way.limits = self._of_listeners.get(listener.name, _NONE)
        _change_rate(way.bucket, way.limits, _now_ms())
        _change_rate(self._bucket, self._limits, _now_ms())
        self._ways[listener.name] = way
        return way

    def _wait_ms(self, way: _Way) -> int | None:
        """How long the next connection must wait; None where nothing but a place that is left ends it."""
        if way.open_count >= way.limits.max_connections:
            return None
        if not way.is_internal and self._open_count >= self._limits.max_connections:
            return None
        now_ms, longest_ms = _now_ms(), 0
        for bucket in (way.bucket,) if way.is_internal else (way.bucket, self._bucket):
            wait_ms = bucket.ready_in_ms(now_ms)
            if wait_ms is None:
                return None
            longest_ms = max(longest_ms, wait_ms)
        return longest_ms

    def _enter(self, way: _Way, newcomer: Newcomer) -> None:
        way.bucket.spend(1, _now_ms())
        self._bucket.spend(1, _now_ms())
        if newcomer.enter():
            way.open_count += 1
            self._open_count += 1

    def _let_in_soon(self, way: _Way) -> None:
        if way.waiting:
            if way.timer is not None:
                way.timer.cancel()
            way.timer = asyncio.get_running_loop().call_soon(self._let_in, way)

    def _let_in(self, way: _Way) -> None:
        way.timer = None
        while way.waiting:
            wait_ms = self._wait_ms(way)
            if wait_ms is None:
                return
            if wait_ms:
                way.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._let_in, way)
                return
            self._enter(way, way.waiting.popleft())


def _change_rate(bucket: TokenBucket, limits: Limits, now_ms: int) -> None:
    rate = limits.creation_rate
    bucket.change_rate(UNLIMITED if rate >= INT32_MAX else rate, now_ms)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
