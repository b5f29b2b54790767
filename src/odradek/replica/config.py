"""Settings of replicas and of what they answer."""

from __future__ import annotations

from odradek.common.config import config, option


@config
class ReplicaConfig:
    """What all partitions of a broker go by."""

    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        default=57_671_680,
        unit="bytes",
        doc="The most that one Fetch is answered with; a first batch that is larger is given all the same.",
    )
    lag_time_max_ms: int = option(
        "replica.lag.time.max.ms",
        default=30_000,
        unit="ms",
        doc="A follower that was not caught up for so long leaves the in-sync set.",
    )
    selector_class: str | None = option(
        "replica.selector.class",
        default=None,
        doc="Which replica a consumer reads from: RackAwareReplicaSelector sends it to one in its rack (KIP-392).",
    )


@config
class FetcherConfig:
    """How this broker fetches what it follows."""

    fetcher_count: int = option(
        "num.replica.fetchers", default=1, unit="count", doc="Connections to each leader that is followed."
    )
    max_bytes: int = option(
        "replica.fetch.max.bytes",
        default=1024 * 1024,
        unit="bytes",
        doc="The most that a follower asks of one partition; a first batch that is larger is given all the same.",
    )
    response_max_bytes: int = option(
        "replica.fetch.response.max.bytes",
        default=10 * 1024 * 1024,
        unit="bytes",
        doc="The most that a follower asks of one leader at once.",
    )
    min_bytes: int = option(
        "replica.fetch.min.bytes",
        default=1,
        unit="bytes",
        doc="A leader answers a follower when it has so much, or when replica.fetch.wait.max.ms is over.",
    )
    wait_max_ms: int = option(
        "replica.fetch.wait.max.ms",
        default=500,
        unit="ms",
        doc="The longest that a follower's fetch waits for data; keep it well below replica.lag.time.max.ms.",
    )
    backoff_ms: int = option(
        "replica.fetch.backoff.ms",
        default=1000,
        unit="ms",
        doc="The longest pause after a fetch that failed; the first pauses are shorter.",
    )
    socket_timeout_ms: int = option(
        "replica.socket.timeout.ms",
        default=30_000,
        unit="ms",
        doc="A leader that does not answer for so long is connected to anew.",
    )
