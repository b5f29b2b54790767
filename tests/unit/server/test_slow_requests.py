"""Slow requests get a line in the log with their phases and their client."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

import pytest

from odradek.protocol.apis import ApiKey
from odradek.server.network.request_times import RequestTimes, RouteTimes
from odradek.server.network.slow_requests import Sender, SlowRequests

LIMIT_MS = 100
MS = 1_000_000


@dataclass
class Peer:
    """The attributes of a connection and of a request's context that are in a line."""

    peer: str = "10.0.0.1:4711"
    principal: str = "User:alice"
    client_id: str = "app"
    api_version: int = 9

    @property
    def connection(self) -> Peer:
        return self


@dataclass
class Replicated:
    """A partition, with the attributes that are in a line."""

    name: str
    isr: tuple[int, ...]


def lines(
    caplog: pytest.LogCaptureFixture,
    api: ApiKey,
    *,
    queue: int = 0,
    local: int = 0,
    remote: int = 0,
    send: int = 0,
    partition: Replicated | None = None,
) -> list[dict[str, Any]]:
    """The fields of the lines for one request, with its phases in ms."""
    times = RouteTimes(slow=SlowRequests(api, api.name, LIMIT_MS))
    began_ns = 1000 * MS
    request = RequestTimes(times, began_ns - queue * MS, began_ns, 200)
    request.sender = Sender(cast(Any, Peer()))
    request.sender.waited_for = partition
    request.decided_ns = began_ns + local * MS if remote else 0
    request.ready_ns = began_ns + (local + remote) * MS
    caplog.clear()
    logger = logging.getLogger("odradek")
    before, logger.propagate = logger.propagate, True
    try:
        with caplog.at_level(logging.WARNING, "odradek"):
            request.sent(request.ready_ns + send * MS)
    finally:
        logger.propagate = before
    return [cast(Any, record).fields for record in caplog.records]


def test_a_line_has_the_phases_and_who_asked(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = lines(
        caplog, ApiKey.PRODUCE, queue=5, local=2, remote=150, send=1, partition=Replicated("orders-0", (1, 2))
    )
    assert line == {
        "api": "PRODUCE",
        "version": 9,
        "total_ms": 158.0,
        "queue_ms": 5.0,
        "local_ms": 2.0,
        "remote_ms": 150.0,
        "send_ms": 1.0,
        "throttle_ms": 0,
        "waited_for": "the in-sync replicas 1,2 of orders-0",
        "client_id": "app",
        "peer": "10.0.0.1:4711",
        "principal": "User:alice",
        "request_bytes": 200,
        "response_bytes": 0,
    }


@pytest.mark.parametrize(
    ("api", "phases", "waited_for"),
    [
        (ApiKey.METADATA, {"local": 101}, "this node's own work"),
        (ApiKey.METADATA, {"local": 100}, None),
        (ApiKey.METADATA, {"queue": 90, "send": 20}, "requests before it, or the end of a throttle"),
        (ApiKey.FETCH, {"send": 200}, "the client to read, or answers before it"),
        (ApiKey.CREATE_TOPICS, {"remote": 200}, "other nodes, or the disk"),
        (ApiKey.FETCH, {"remote": 500, "local": 1}, None),
        (ApiKey.FETCH, {"remote": 500, "local": 101}, "this node's own work"),
        (ApiKey.JOIN_GROUP, {"remote": 3000}, None),
        (ApiKey.SYNC_GROUP, {"remote": 3000}, None),
    ],
)
def test_a_wait_that_the_client_asked_for_is_not_slow(
    caplog: pytest.LogCaptureFixture, api: ApiKey, phases: dict[str, Any], waited_for: str | None
) -> None:
    assert [line["waited_for"] for line in lines(caplog, api, **phases)] == ([] if waited_for is None else [waited_for])
