"""The node's metrics in Prometheus' text format.

Everything is computed when it is asked for; prometheus_client, which writes the format, is imported at the first
scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from odradek.common.metrics import Family, Metrics, Sample
from odradek.log.compaction.metrics import cleaner_families
from odradek.replica.metrics import replication_families
from odradek.server.network.request_times import request_time_families
from odradek.server.transactions.metrics import exactly_once_families

if TYPE_CHECKING:
    from odradek.server.network.dispatch import Dispatcher


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
    yield from request_time_families((route.times, labels) for route, labels in routes)
    yield Family.gauge("odradek_connections", "Connections that are open.", len(connections))
    yield Family.counter("odradek_connections_accepted", "Connections that were taken.", connections.accepted_count)
    yield Family.counter("odradek_connections_refused", "Connections beyond the limits.", connections.refused_count)
    yield Family.counter(
        "odradek_connections_throttled", "Connections beyond a connection_creation_rate.", connections.throttled_count
    )
    entrance = connections.entrance
    yield Family.gauge("odradek_connections_waiting", "New connections that wait for a place.", entrance.waiting_count)
    yield Family.counter("odradek_connections_waited", "New connections that had to wait.", entrance.waited_count)
    yield Family.counter("odradek_connections_slow", "Closed: a request came too slowly.", connections.slow_count)
    budgets = dispatcher.memory, dispatcher.login_memory
    held, waiting = sum(each.held_bytes for each in budgets), sum(each.waiting_count for each in budgets)
    yield Family.gauge("odradek_request_memory_bytes", "Memory of requests under way.", held)
    yield Family.gauge("odradek_request_memory_waiting", "Requests that wait for memory.", waiting)
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
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds: dict[str, Any] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }

    class Collector:
        def collect(self) -> Iterator[Any]:
            for family in metrics.families():
                samples = family.samples or family.histograms
                labels = [name for name, _ in samples[0].labels] if samples else []
                shown = kinds[family.kind](family.name, family.help, labels=labels)
                for sample in family.samples:
                    shown.add_metric([value for _, value in sample.labels], sample.value)
                for each in family.histograms:
                    shown.add_metric([value for _, value in each.labels], each.buckets, each.sum)
                yield shown

    registry = CollectorRegistry()
    registry.register(cast(Any, Collector()))
    text: bytes = generate_latest(registry)
    return text
