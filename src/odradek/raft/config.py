"""Settings of the quorum and of the metadata log; Kafka's keys and defaults."""

from __future__ import annotations

from odradek.common.config import config, option


@config
class RaftConfig:
    """What the raft driver and node go by."""

    election_timeout_ms: int = option(
        "controller.quorum.election.timeout.ms",
        default=1000,
        unit="ms",
        doc="How long a voter waits for a leader before it asks for votes.",
    )
    fetch_timeout_ms: int = option(
        "controller.quorum.fetch.timeout.ms",
        default=2000,
        unit="ms",
        doc="How long a follower waits for its leader, and a leader for a majority.",
    )
    request_timeout_ms: int = option(
        "controller.quorum.request.timeout.ms",
        default=2000,
        unit="ms",
        doc="How long a replica waits for the answer of another.",
    )
    retry_backoff_ms: int = option(
        "controller.quorum.retry.backoff.ms",
        default=20,
        unit="ms",
        doc="How long a replica waits before it asks again after a failure.",
    )
    election_backoff_max_ms: int = option(
        "controller.quorum.election.backoff.max.ms",
        default=1000,
        unit="ms",
        doc="How long a voter that lost an election waits at most before the next.",
    )
    fetch_max_bytes: int = option(
        "controller.quorum.fetch.max.bytes",
        default=1_048_576,
        unit="bytes",
        doc="How many bytes of the metadata log a replica asks for at once.",
    )
    fetch_snapshot_max_bytes: int = option(
        "controller.quorum.fetch.snapshot.max.bytes",
        default=1_048_576,
        unit="bytes",
        doc="How many bytes of a snapshot a replica asks for at once.",
    )
    auto_join: bool = option(
        "controller.quorum.auto.join.enable",
        default=False,
        doc="Whether a controller of a dynamic quorum that is no voter asks to become one.",
    )
    segment_bytes: int = option(
        "metadata.log.segment.bytes",
        default=1 << 30,
        unit="bytes",
        doc="Roll a new segment of the metadata log at this size.",
    )
    segment_ms: int = option(
        "metadata.log.segment.ms",
        default=604_800_000,
        unit="ms",
        doc="Roll a new segment of the metadata log at this age.",
    )
    snapshot_bytes: int = option(
        "metadata.log.max.record.bytes.between.snapshots",
        default=20_971_520,
        unit="bytes",
        doc="Write a snapshot after so many bytes of new records.",
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
