"""The node's metrics in Prometheus' text format.

Everything is computed at the scrape; prometheus_client, which has the metrics of the process, is imported at the first
scrape that includes them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from odradek.common.metrics import Family, Sample
from odradek.log.compaction.metrics import cleaner_families
from odradek.replica.metrics import replication_families
from odradek.server.metrics_text import metrics_text
from odradek.server.network.request_times import Labels, RouteTimes, request_time_families
from odradek.server.transactions.metrics import exactly_once_families

if TYPE_CHECKING:
    from odradek.log.manager import LogManager
    from odradek.server.network.dispatch import Dispatcher, Route


def node_families(dispatcher: Dispatcher) -> Iterator[Family]:
    """The metrics of the parts of a node."""
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
    yield Family("odradek_requests", "counter", "Requests, by API.", _samples(routes, "request_count"))
    yield Family(
        "odradek_request_errors", "counter", "Requests that failed as a whole.", _samples(routes, "error_count")
    )
    yield Family("odradek_request_bytes", "counter", "Bytes of requests, by API.", _samples(routes, "request_bytes"))
    yield from request_time_families(_timed(routes))
    yield Family.gauge("odradek_connections", "Connections that are open.", len(connections))
    of_listeners = Counter(each.listener.name for each in connections)
    yield Family(
        "odradek_listener_connections",
        "gauge",
        "Connections that are open, by listener.",
        tuple(Sample(count, (("listener", name),)) for name, count in sorted(of_listeners.items())),
    )
    yield Family.counter("odradek_connections_accepted", "Connections that were accepted.", connections.accepted_count)
    yield Family.counter(
        "odradek_connections_refused", "Connections that were refused because of a limit.", connections.refused_count
    )
    yield Family.counter(
        "odradek_connections_throttled", "Connections beyond a connection_creation_rate.", connections.throttled_count
    )
    connection_quotas = connections.connection_quotas
    yield Family.gauge(
        "odradek_connections_waiting", "New connections that wait for a place.", connection_quotas.waiting_count
    )
    yield Family.counter(
        "odradek_connections_waited", "New connections that had to wait.", connection_quotas.waited_count
    )
    yield Family.counter("odradek_connections_slow", "Closed: a request came too slowly.", connections.slow_count)
    budgets = dispatcher.memory, dispatcher.login_memory
    held, waiting = sum(each.held_bytes for each in budgets), sum(each.waiting_count for each in budgets)
    yield Family.gauge("odradek_request_memory_bytes", "Memory of requests under way.", held)
    yield Family.gauge("odradek_request_memory_waiting", "Requests that wait for memory.", waiting)
    yield Family.gauge("odradek_fetch_sessions", "Fetch sessions that are kept.", len(services.fetch_sessions))
    yield Family.gauge("odradek_fetches_waiting", "Fetch requests that wait for data.", replicas.parked_fetch_count)
    yield Family.gauge("odradek_partitions", "Partitions with a replica on this broker.", len(replicas))
    yield Family.gauge("odradek_partitions_led", "Partitions that this broker leads.", led)
    yield from replication_families(replicas)
    yield from _directory_families(services.log_manager)
    yield Family.gauge(
        "odradek_metadata_offset", "Offset of the last metadata record that this node has applied.", image.offset
    )
    yield Family("odradek_log_size_bytes", "gauge", "Bytes of a log's segments.", _samples(per_log, "size_bytes"))
    yield Family("odradek_log_start_offset", "gauge", "A log's first offset.", _samples(per_log, "log_start_offset"))
    yield Family("odradek_log_end_offset", "gauge", "A log's next offset.", _samples(per_log, "log_end_offset"))
    yield Family("odradek_log_high_watermark", "gauge", "A log's high watermark.", _samples(per_log, "high_watermark"))
    yield from exactly_once_families(services)
    yield from services.scrub_counts.families()
    yield from cleaner_families(services.cleaner, [log for log, _ in per_log])


def _timed(routes: Iterable[tuple[Route, Labels]]) -> Iterator[tuple[RouteTimes, Labels]]:
    """The times by API; those of followers' fetches as an API of their own, since they wait for other things."""
    for route, labels in routes:
        yield route.times, labels
        if route.times.followers is not None:
            yield route.times.followers, (("api", f"{route.name}Follower"), *labels[1:])


def _samples(items: Iterable[tuple[Any, tuple[tuple[str, str], ...]]], attribute: str) -> tuple[Sample, ...]:
    return tuple(Sample(getattr(item, attribute), labels) for item, labels in items)


def _directory_families(log_manager: LogManager) -> Iterator[Family]:
    """Log directories: which have failed, and how much space the others have."""
    working = [each for each in log_manager.directories if not each.offline]
    offline = len(log_manager.directories) - len(working)
    yield Family.gauge("odradek_log_directories_offline", "Log directories whose disk failed.", offline)
    usages = []
    for each in working:
        with contextlib.suppress(OSError):  # the next write there reports it
            usages.append((log_manager.disk.usage(each.path), (("directory", str(each.path)),)))
    yield Family(
        "odradek_log_directory_size_bytes",
        "gauge",
        "Size of the file system of a log directory.",
        _samples(usages, "total_bytes"),
    )
    yield Family(
        "odradek_log_directory_free_bytes",
        "gauge",
        "Bytes that this process may still write to a log directory.",
        _samples(usages, "usable_bytes"),
    )


def exposition(families: Iterable[Family], *, processes: bool = False) -> bytes:
    """Families in the text format; `processes`: include the metrics of the process, as `process_open_fds`."""
    text = metrics_text(families).encode()
    return text + _process_text() if processes else text


def _process_text() -> bytes:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    text: bytes = generate_latest(registry)
    return text
