"""Settings of the group coordinator, by Kafka's names."""

from __future__ import annotations

from odradek.common.numbers import INT32_MAX
from odradek.settings.options import config, option


@config
class GroupConfig:
    """Classic groups, committed offsets, and the topic that keeps both."""

    initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        default=3000,
        unit="ms",
        doc="How long the first rebalance of an empty group waits for more members.",
    )
    min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms",
        default=6000,
        unit="ms",
        doc="Lower bound of session.timeout.ms of classic members.",
    )
    max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms",
        default=1_800_000,
        unit="ms",
        doc="Upper bound of session.timeout.ms of classic members.",
    )
    max_size: int = option("group.max.size", default=INT32_MAX, unit="count", doc="Maximum members of a classic group.")
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes",
        default=4096,
        unit="bytes",
        doc="Maximum length of the metadata of a committed offset.",
    )
    offsets_retention_minutes: int = option(
        "offsets.retention.minutes",
        default=10080,
        unit="minutes",
        doc="Retention of offsets after their group became empty, or of simple groups after the last commit.",
    )
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        default=600_000,
        unit="ms",
        doc="Interval of the check for expired offsets.",
    )
    offsets_commit_timeout_ms: int = option(
        "offsets.commit.timeout.ms",
        default=5000,
        unit="ms",
        doc="Timeout of an offset commit's replication.",
    )
    offsets_topic_num_partitions: int = option(
        "offsets.topic.num.partitions",
        default=50,
        unit="count",
        doc="Partitions of the offsets topic when it is created.",
    )
    offsets_topic_replication_factor: int = option(
        "offsets.topic.replication.factor",
        default=3,
        unit="count",
        doc="Replicas of the offsets topic when it is created.",
    )
    offsets_topic_segment_bytes: int = option(
        "offsets.topic.segment.bytes", default=104_857_600, unit="bytes", doc="Segment size of the offsets topic."
    )
