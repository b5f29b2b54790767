"""Settings of the quorum and of the metadata log; Kafka's keys and defaults."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class RaftConfig:
    """The settings of the raft driver and node."""

    election_timeout_ms: int = option(
        "controller.quorum.election.timeout.ms",
        default=1000,
        unit="ms",
        doc="Time without a leader after which a voter starts an election.",
    )
    fetch_timeout_ms: int = option(
        "controller.quorum.fetch.timeout.ms",
        default=2000,
        unit="ms",
        doc="Time without a fetch response after which a follower starts an election, and without fetches of a "
        "majority after which a leader resigns.",
    )
    request_timeout_ms: int = option(
        "controller.quorum.request.timeout.ms",
        default=2000,
        unit="ms",
        doc="Timeout of requests between replicas of the quorum.",
    )
    retry_backoff_ms: int = option(
        "controller.quorum.retry.backoff.ms",
        default=20,
        unit="ms",
        doc="Pause before a replica of the quorum retries a failed request.",
    )
    election_backoff_max_ms: int = option(
        "controller.quorum.election.backoff.max.ms",
        default=1000,
        unit="ms",
        doc="Maximum random backoff of a voter that lost an election.",
    )
    fetch_max_bytes: int = option(
        "controller.quorum.fetch.max.bytes",
        default=1_048_576,
        unit="bytes",
        doc="Maximum bytes of the metadata log in one fetch of a replica.",
    )
    fetch_snapshot_max_bytes: int = option(
        "controller.quorum.fetch.snapshot.max.bytes",
        default=1_048_576,
        unit="bytes",
        doc="Maximum bytes of a snapshot in one FetchSnapshot.",
    )
    auto_join: bool = option(
        "controller.quorum.auto.join.enable",
        default=False,
        doc="Whether a controller of a dynamic quorum that is an observer adds itself as a voter.",
    )
    segment_bytes: int = option(
        "metadata.log.segment.bytes",
        default=1 << 30,
        unit="bytes",
        doc="Maximum size of a segment of the metadata log.",
    )
    segment_ms: int = option(
        "metadata.log.segment.ms",
        default=604_800_000,
        unit="ms",
        doc="Roll a segment of the metadata log at this age.",
    )
    snapshot_bytes: int = option(
        "metadata.log.max.record.bytes.between.snapshots",
        default=20_971_520,
        unit="bytes",
        doc="Write a snapshot after this many bytes of new records.",
    )
    snapshot_interval_ms: int = option(
        "metadata.log.max.snapshot.interval.ms",
        default=3_600_000,
        unit="ms",
        doc="Write a snapshot after this time, if there are new records; 0 never.",
    )
    retention_bytes: int = option(
        "metadata.max.retention.bytes",
        default=104_857_600,
        unit="bytes",
        doc="Remove old snapshots, and the log before the oldest that is left, above this size.",
    )
    retention_ms: int = option(
        "metadata.max.retention.ms",
        default=604_800_000,
        unit="ms",
        doc="Remove snapshots older than this, except the newest.",
    )
