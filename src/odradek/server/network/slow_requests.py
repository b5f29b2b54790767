"""A line in the log for a request that took longer than a limit: with its phases, and what it waited for.

A wait that the client requests does not count: a Fetch for data, members of a group for each other. Lines that are
alike are counted, as all warnings are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.common.log_lines import get_logger
from odradek.protocol.apis import ApiKey
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.server.context import RequestContext
    from odradek.server.network.connection import Connection
    from odradek.server.network.request_times import RequestTimes

TEXT, JSON = "text", "json"
_NS_PER_MS = 1_000_000
_LONG_POLL_APIS = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_log = get_logger("server.network.slow_requests")


@config
class LogLinesConfig:
    """The lines of a node's own log."""

    line_format: str = option(
        "odradek.log.format", default=TEXT, doc="How a node writes its log: text, or json, one object a line."
    )
    slow_request_ms: int = option(
        "odradek.request.slow.ms",
        default=0,
        unit="ms",
        doc="A request that takes longer, but for waits that it asks for, gets a line in the log; 0: none does.",
    )


class Named(Protocol):
    """A partition whose in-sync replicas were waited for."""

    isr: tuple[int, ...]

    @property
    def name(self) -> str:
        """As `orders-0`."""
        ...


class Sender:
    """The sender of a request, until it is answered."""

    __slots__ = ("api_version", "client_id", "connection", "waited_for")

    def __init__(self, context: RequestContext) -> None:
        self.connection: Connection = context.connection
        self.client_id = context.client_id
        self.api_version = context.api_version
        self.waited_for: Named | None = None


class SlowRequests:
    """The limit for one API."""

    def __init__(self, api_key: ApiKey, api: str, limit_ms: int) -> None:
        self._api = api
        self._limit_ns = limit_ms * _NS_PER_MS
        self._is_long_poll = api_key in _LONG_POLL_APIS

    def check(self, times: RequestTimes, now_ns: int) -> None:
        """Write a line if the request was slow."""
        came_ns = times.waiting_since_ns or times.began_ns
        remote_ns = times.ready_ns - times.decided_ns if times.decided_ns else 0
        total_ns = now_ns - came_ns
        if total_ns - (remote_ns if self._is_long_poll else 0) <= self._limit_ns:
            return
        phases = {
            "queue": times.began_ns - came_ns,
            "local": times.ready_ns - times.began_ns - remote_ns,
            "remote": remote_ns,
            "send": now_ns - times.ready_ns,
        }
        counted = {name: ns for name, ns in phases.items() if name != "remote" or not self._is_long_poll}
        longest = max(counted, key=lambda name: counted[name])
        sender = times.sender
        assert sender is not None, "made with the times where there is a limit"
        _log.warning(
            "a request was slow",
            alike=f"{self._api} {longest}",
            api=self._api,
            version=sender.api_version,
            total_ms=_ms(total_ns),
            **{f"{name}_ms": _ms(ns) for name, ns in phases.items()},
            throttle_ms=times.throttle_ms,
            waited_for=_waited_for(longest, sender.waited_for),
            client_id=sender.client_id,
            peer=sender.connection.peer,
            principal=sender.connection.principal,
            request_bytes=times.request_bytes,
            response_bytes=times.response_bytes,
        )


def _ms(ns: int) -> float:
    return round(ns / _NS_PER_MS, 3)


def _waited_for(phase: str, partition: Named | None) -> str:
    if phase == "remote" and partition is not None:
        return f"the in-sync replicas {','.join(map(str, partition.isr))} of {partition.name}"
    return {
        "queue": "requests before it, or the end of a throttle",
        "local": "this node's own work",
        "remote": "other nodes, or the disk",
        "send": "the client to read, or answers before it",
    }[phase]
