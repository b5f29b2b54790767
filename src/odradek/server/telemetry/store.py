"""Stores the metrics that clients push for the next scrapes, with limits for clients and series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.common.metrics import Family, Sample
from odradek.metadata.image import MetadataImage
from odradek.server.telemetry.otlp import Point
from odradek.server.telemetry.subscriptions import Resources, Subscription, subscription_of
from odradek.settings.options import config, option

# As Kafka: the number of clients with the latest requests.
MAX_CLIENTS = 16_384
# Limits in characters, since a client may send megabytes. A series is a name with attributes.
LONGEST_SERIES = 1024
LONGEST_CLIENT_ID = 256
# A client that has pushed nothing for so many of its intervals is gone.
SILENT_INTERVALS = 3
# The tolerance for an early push, after a fast response to the previous one.
_EARLY = 0.9
# After these errors a client requests its subscription again at once, and must get it.
_ASKS_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
Key = tuple[str, tuple[tuple[str, str], ...]]


@config
class TelemetryConfig:
    """The limits for telemetry of clients."""

    max_bytes: int = option(
        "telemetry.max.bytes",
        default=1_048_576,
        unit="bytes",
        doc="The largest push of metrics that is taken from a client.",
    )
    max_series: int = option(
        "odradek.client.metrics.max.series",
        default=2000,
        unit="count",
        doc="Series of clients' metrics that a node keeps and shows; what comes beyond is counted.",
    )


@dataclass(slots=True)
class Client:
    """One client instance; times are monotonic ms, -1 for never. `is_removed`: it is no longer in the store."""

    client_id: str = ""
    interval_ms: int = 0
    last_get_ms: int = -1
    last_push_ms: int = -1
    last_error: int = 0
    is_terminating: bool = False
    is_removed: bool = False
    series: dict[Key, float] = field(default_factory=dict)

    def may_subscribe(self, now_ms: int) -> bool:
        """Whether the client may request the subscription now."""
        newest_ms = max(self.last_get_ms, self.last_push_ms)
        return newest_ms < 0 or self.last_error in _ASKS_AGAIN or self._is_over(newest_ms, now_ms)

    def may_push(self, now_ms: int) -> bool:
        """Whether the client may push now; the first push after a subscription may come at any time."""
        return self.last_get_ms > self.last_push_ms or self.last_push_ms < 0 or self._is_over(self.last_push_ms, now_ms)

    def _is_over(self, since_ms: int, now_ms: int) -> bool:
        return now_ms - since_ms >= self.interval_ms * _EARLY


class ClientTelemetry:
    """The telemetry of all clients of one node.

    Attributes:
        is_on: whether anything shows it: without, clients are not invited to push.
    """

    def __init__(self, settings: TelemetryConfig, new_instance: Callable[[], UUID], *, is_on: bool) -> None:
        """`new_instance` draws an id for a client that has none."""
        self.config = settings
        self.new_instance = new_instance
        self.is_on = is_on
        self._clients: dict[UUID, Client] = {}
        self._resources = Resources()
        self._series_count = 0
        self.pushes = 0
        self.refused_pushes = 0
        self.left_out = 0

    def client(self, instance: UUID, client_id: str) -> Client:
        """The state of a client; if there are too many, those with the oldest requests are removed."""
        known = self._clients.pop(instance, None) or Client()
        self._clients[instance] = known
        known.client_id = client_id[:LONGEST_CLIENT_ID]
        if len(self._clients) > MAX_CLIENTS:
            self._remove(next(iter(self._clients)))
        return known

    def subscription(self, image: MetadataImage, client: Mapping[str, str]) -> Subscription:
        """The subscription of a client with these selectors."""
        return subscription_of(self._resources.of(image), client)

    def store(self, client: Client, points: Sequence[Point]) -> None:
        """Store pushed values of a known client, if they are shown anywhere."""
        self.pushes += 1
        if client.is_removed or not self.is_on:
            return
        for point in points:
            key = (point.name, point.attributes)
            before = client.series.get(key)
            if before is None and (self._series_count >= self.config.max_series or _length(point) > LONGEST_SERIES):
                self.left_out += 1
                continue
            self._series_count += before is None
            client.series[key] = point.value + (before or 0.0) if point.is_delta else point.value

    def _remove(self, instance: UUID) -> None:
        client = self._clients.pop(instance)
        client.is_removed = True
        self._series_count -= len(client.series)

    def families(self, now_ms: int) -> Iterator[Family]:
        """The metrics of clients that still push."""
        for instance, client in list(self._clients.items()):
            last_request_ms = max(client.last_get_ms, client.last_push_ms)
            if client.is_terminating or now_ms - last_request_ms > SILENT_INTERVALS * max(client.interval_ms, 1000):
                self._remove(instance)
        samples = tuple(
            Sample(value, _labels(name, client.client_id, instance, attributes))
            for instance, client in self._clients.items()
            for (name, attributes), value in client.series.items()
        )
        yield Family("odradek_client_metric", "gauge", "Metrics that clients push (KIP-714); sums as totals.", samples)
        yield Family.gauge("odradek_client_metrics_clients", "Clients that push metrics here.", len(self._clients))
        yield Family.counter("odradek_client_metrics_pushes", "Pushes of metrics that were accepted.", self.pushes)
        yield Family.counter(
            "odradek_client_metrics_pushes_refused",
            "Pushes of metrics that were refused.",
            self.refused_pushes,
        )
        yield Family.counter(
            "odradek_client_metrics_left_out",
            "Values that were dropped: of series beyond odradek.client.metrics.max.series, or with longer names than "
            f"{LONGEST_SERIES} characters.",
            self.left_out,
        )


def _length(point: Point) -> int:
    return len(point.name) + sum(len(key) + len(value) for key, value in point.attributes)


def _labels(
    name: str, client_id: str, instance: UUID, attributes: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """A metric's own attributes are one label, as `node_id=1`."""
    own = ",".join(f"{key}={value}" for key, value in attributes)
    return ("metric", name), ("client_id", client_id), ("client", str(instance)), ("attributes", own)
