"""Settings of replicas and fetchers."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class ReplicaConfig:
    """The settings of all partitions of a broker."""

    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        default=57_671_680,
        unit="bytes",
        doc="Maximum size of a Fetch response; a larger first batch is returned nevertheless.",
    )
    lag_time_max_ms: int = option(
        "replica.lag.time.max.ms",
        default=30_000,
        unit="ms",
        doc="A follower that was not caught up for this time is removed from the ISR.",
    )
    selector_class: str | None = option(
        "replica.selector.class",
        default=None,
        doc="Which replica a consumer reads from: RackAwareReplicaSelector sends it to one in its rack (KIP-392).",
    )


@config
class FetcherConfig:
    """The settings of the replica fetchers."""

    fetcher_count: int = option(
        "num.replica.fetchers", default=1, unit="count", doc="Fetcher connections to each leader."
    )
    max_bytes: int = option(
        "replica.fetch.max.bytes",
        default=1024 * 1024,
        unit="bytes",
        doc="Maximum bytes of one partition in a follower's fetch; a larger first batch is returned nevertheless.",
    )
    response_max_bytes: int = option(
        "replica.fetch.response.max.bytes",
        default=10 * 1024 * 1024,
        unit="bytes",
        doc="Maximum bytes of a response to a follower.",
    )
    min_bytes: int = option(
        "replica.fetch.min.bytes",
        default=1,
        unit="bytes",
        doc="Minimum bytes of a response to a follower, unless replica.fetch.wait.max.ms has passed.",
    )
    wait_max_ms: int = option(
        "replica.fetch.wait.max.ms",
        default=500,
        unit="ms",
        doc="Maximum wait of a follower's fetch for data; keep it well below replica.lag.time.max.ms.",
    )
    backoff_ms: int = option(
        "replica.fetch.backoff.ms",
        default=1000,
        unit="ms",
        doc="Maximum backoff after a failed fetch.",
    )
    socket_timeout_ms: int = option(
        "replica.socket.timeout.ms",
        default=30_000,
        unit="ms",
        doc="Timeout of a follower's fetch, after which it reconnects.",
    )
