"""The node's metrics in Prometheus' text format, over plain HTTP at `/metrics`.

A scrape is one small GET, answered and closed. Everything is computed when it is asked for; prometheus_client, which
writes the format, is imported at the first scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from odradek.common.metrics import Family, Metrics, Sample
from odradek.log.compaction.metrics import cleaner_families
from odradek.replica.metrics import replication_families
from odradek.server.transactions.metrics import exactly_once_families

if TYPE_CHECKING:
    from odradek.server.network.dispatch import Dispatcher

MAX_REQUEST_BYTES = 16 * 1024
TIMEOUT_S = 10.0


def node_families(dispatcher: Dispatcher) -> Iterator[Family]:
    """What the parts of a node know of themselves."""
    services, connections = dispatcher.services, dispatcher.connections
    routes = [
        (route, (("api", route.name), ("listener", scope)))
        for scope, by_key in sorted(dispatcher.routes.items())
        for _, route in sorted(by_key.items())
        if route.request_count
    ]
    replicas, image = services.replicas, services.image
    logs = services.log_manager.logs
    per_log = [(log, (("topic", topic), ("partition", str(number)))) for (topic, number), log in sorted(logs.items())]
    led = sum(partition.is_leader for partition in replicas)
    offline = sum(each.offline for each in services.log_manager.directories)
    yield Family("odradek_requests", "counter", "Requests, by API.", _samples(routes, "request_count"))
    yield Family("odradek_request_errors", "counter", "Requests that failed whole.", _samples(routes, "error_count"))
    yield Family("odradek_request_bytes", "counter", "Bytes of requests, by API.", _samples(routes, "request_bytes"))
    yield Family.gauge("odradek_connections", "Connections that are open.", len(connections))
    yield Family.counter("odradek_connections_accepted", "Connections that were taken.", connections.accepted_count)
    yield Family.counter("odradek_connections_refused", "Connections beyond the limits.", connections.refused_count)
    yield Family.counter(
        "odradek_connections_throttled", "Connections beyond a connection_creation_rate.", connections.throttled_count
    )
    yield Family.counter("odradek_connections_slow", "Closed: a request came too slowly.", connections.slow_count)
    memory = dispatcher.memory
    yield Family.gauge("odradek_request_memory_bytes", "Memory of requests under way.", memory.held_bytes)
    yield Family.gauge("odradek_request_memory_waiting", "Requests that wait for memory.", memory.waiting_count)
    yield Family.gauge("odradek_fetch_sessions", "Fetch sessions that are kept.", len(services.fetch_sessions))
    yield Family.gauge("odradek_fetches_waiting", "Fetch requests that wait for data.", replicas.parked_fetch_count)
    yield Family.gauge("odradek_partitions", "Partitions that lie on this broker.", len(replicas))
    yield Family.gauge("odradek_partitions_led", "Partitions that this broker leads.", led)
    yield from replication_families(replicas)
    yield Family.gauge("odradek_log_directories_offline", "Log directories whose disk failed.", offline)
    yield Family.gauge("odradek_metadata_offset", "The last metadata record that this node goes by.", image.offset)
    yield Family("odradek_log_size_bytes", "gauge", "Bytes of a log's segments.", _samples(per_log, "size_bytes"))
    yield Family("odradek_log_start_offset", "gauge", "A log's first offset.", _samples(per_log, "log_start_offset"))
    yield Family("odradek_log_end_offset", "gauge", "A log's next offset.", _samples(per_log, "log_end_offset"))
    yield Family("odradek_log_high_watermark", "gauge", "A log's high watermark.", _samples(per_log, "high_watermark"))
    yield from exactly_once_families(services)
    yield from services.scrub_counts.families()
    yield from cleaner_families(services.cleaner, [log for log, _ in per_log])


def _samples(items: Iterable[tuple[Any, tuple[tuple[str, str], ...]]], attribute: str) -> tuple[Sample, ...]:
    return tuple(Sample(getattr(item, attribute), labels) for item, labels in items)


def exposition(metrics: Metrics) -> bytes:
    """All metrics in the text format."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Collector:
        def collect(self) -> Iterator[Any]:
            for family in metrics.families():
                labels = [name for name, _ in family.samples[0].labels] if family.samples else []
                kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                shown = kind(family.name, family.help, labels=labels)
                for sample in family.samples:
                    shown.add_metric([value for _, value in sample.labels], sample.value)
                yield shown

    registry = CollectorRegistry()
    registry.register(cast(Any, Collector()))
    text: bytes = generate_latest(registry)
    return text


class MetricsConnection(asyncio.Protocol):
    """One HTTP connection: one request, one answer."""

    def __init__(self, metrics: Metrics, clients_below: int) -> None:
        """`clients_below`: a connection whose descriptor is not below it is refused."""
        self._metrics = metrics
        self._clients_below = clients_below
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= self._clients_below:
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._answer()
        elif len(self._received) > MAX_REQUEST_BYTES:
            self._send("431 Request Header Fields Too Large", b"")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self) -> None:
        method, _, rest = self._received.partition(b"\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            self._send("405 Method Not Allowed", b"")
        elif path != b"/metrics":
            self._send("404 Not Found", b"the metrics are at /metrics\n")
        else:
            body = exposition(self._metrics)
            self._send("200 OK", body if method == b"GET" else b"", content_bytes=len(body))

    def _send(self, status: str, body: bytes, content_bytes: int | None = None) -> None:
        assert self._transport is not None
        size = len(body) if content_bytes is None else content_bytes
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {size}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()
