"""Settings of a log, by Kafka's topic keys; the broker's keys give the defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from odradek.common.numbers import INT64_MAX
from odradek.record.batch import COMPRESSION_NAMES
from odradek.record.validation import DECOMPRESSED_FACTOR, MAX_DECOMPRESSED_BYTES, BatchRules
from odradek.settings.options import OptionSpec, config, option
from odradek.settings.table import Scope, setting

NEVER = INT64_MAX


@config
class LogConfig:
    """The settings of one topic's logs."""

    segment_bytes: int = option(
        topic_key="segment.bytes", default=1 << 30, unit="bytes", doc="Maximum size of a segment."
    )
    segment_ms: int = option(topic_key="segment.ms", default=604_800_000, unit="ms", doc="Roll a segment at this age.")
    segment_jitter_ms: int = option(
        topic_key="segment.jitter.ms",
        default=0,
        unit="ms",
        doc="Maximum random jitter subtracted from segment.ms, to avoid synchronized rolls.",
    )
    segment_index_bytes: int = option(
        topic_key="segment.index.bytes",
        default=10_485_760,
        unit="bytes",
        doc="Maximum size of an index; a full one rolls the segment.",
    )
    index_interval_bytes: int = option(
        topic_key="index.interval.bytes",
        default=4096,
        unit="bytes",
        doc="Bytes of log between two index entries.",
    )
    retention_ms: int = option(
        topic_key="retention.ms",
        default=604_800_000,
        unit="ms",
        doc="Delete segments whose newest record is older than this.",
    )
    retention_bytes: int = option(
        topic_key="retention.bytes",
        default=-1,
        unit="bytes",
        doc="Delete the oldest segments of a partition above this size.",
    )
    cleanup_policy: tuple[str, ...] = option(
        topic_key="cleanup.policy",
        default=("delete",),
        doc="Retention by age and size (delete), by key (compact), or both.",
    )
    delete_retention_ms: int = option(
        topic_key="delete.retention.ms", default=86_400_000, unit="ms", doc="How long compaction retains tombstones."
    )
    min_cleanable_dirty_ratio: float = option(
        topic_key="min.cleanable.dirty.ratio",
        default=0.5,
        doc="Compact a log from this dirty ratio on.",
    )
    min_compaction_lag_ms: int = option(
        topic_key="min.compaction.lag.ms", default=0, unit="ms", doc="Records younger than this are not compacted."
    )
    max_compaction_lag_ms: int = option(
        topic_key="max.compaction.lag.ms",
        default=NEVER,
        unit="ms",
        doc="Compact a log when a record has waited for this time, whatever its dirty ratio.",
    )
    file_delete_delay_ms: int = option(
        topic_key="file.delete.delay.ms",
        default=60_000,
        unit="ms",
        doc="Delay between marking files deleted and removing them.",
    )
    max_message_bytes: int = option(
        topic_key="max.message.bytes", default=1_048_588, unit="bytes", doc="Maximum size of a record batch."
    )
    max_decompressed_message_bytes: int = option(
        topic_key="max.decompressed.message.bytes",
        default=2_147_483_639,
        unit="bytes",
        doc="Maximum size of one record of a compressed batch.",
    )
    max_decompressed_batch_bytes: int = option(
        "odradek.max.decompressed.batch.bytes",
        default=MAX_DECOMPRESSED_BYTES,
        unit="bytes",
        doc="Maximum decompressed size of a batch; at least four times max.message.bytes.",
    )
    trust_producers: bool = option(
        "odradek.trust.producers",
        default=False,
        doc="Do not verify that a batch matches its header: a faulty producer can make a topic unreadable.",
    )
    message_timestamp_type: str = option(
        topic_key="message.timestamp.type",
        default="CreateTime",
        doc="Whether timestamps are the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    message_timestamp_before_max_ms: int = option(
        topic_key="message.timestamp.before.max.ms",
        default=NEVER,
        unit="ms",
        doc="Refuse records with a timestamp further in the past.",
    )
    message_timestamp_after_max_ms: int = option(
        topic_key="message.timestamp.after.max.ms",
        default=3_600_000,
        unit="ms",
        doc="Refuse records with a timestamp further in the future.",
    )
    compression_type: str = option(
        topic_key="compression.type",
        default="producer",
        doc="The codec of stored batches; producer keeps the producer's.",
    )
    compression_gzip_level: int = option(
        topic_key="compression.gzip.level",
        default=-1,
        doc="gzip level if the broker compresses; -1 is the codec's default.",
    )
    compression_lz4_level: int = option(
        topic_key="compression.lz4.level", default=9, doc="lz4 level if the broker compresses."
    )
    compression_zstd_level: int = option(
        topic_key="compression.zstd.level", default=3, doc="zstd level if the broker compresses."
    )
    flush_messages: int = option(
        topic_key="flush.messages", default=NEVER, unit="count", doc="Flush the log after this many records."
    )
    flush_ms: int = option(
        topic_key="flush.ms",
        default=NEVER,
        unit="ms",
        doc="Flush the log when its oldest unflushed record is of this age.",
    )
    min_insync_replicas: int = option(
        topic_key="min.insync.replicas",
        default=1,
        unit="count",
        doc="In-sync replicas that acks=all requires.",
    )

    @property
    def codec(self) -> int | None:
        """The number of the codec that batches must be in; None where the producer's is kept."""
        if self.compression_type == "producer":
            return None
        return 0 if self.compression_type == "uncompressed" else COMPRESSION_NAMES.index(self.compression_type)

    @property
    def codec_level(self) -> int | None:
        """The level of `codec`; None for codecs that have none."""
        levels = {1: self.compression_gzip_level, 3: self.compression_lz4_level, 4: self.compression_zstd_level}
        return levels.get(self.codec) if self.codec is not None else None

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is rolled: a record in the active one is not compacted (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def batch_rules(self) -> BatchRules:
        """The rules of batches that these settings accept."""
        return BatchRules(
            max_message_bytes=self.max_message_bytes,
            compacted=self.compacted,
            create_time=not self.log_append_time,
            before_max_ms=self.message_timestamp_before_max_ms,
            after_max_ms=self.message_timestamp_after_max_ms,
            max_decompressed_bytes=max(self.max_decompressed_batch_bytes, DECOMPRESSED_FACTOR * self.max_message_bytes),
            max_record_bytes=self.max_decompressed_message_bytes,
            trusted=self.trust_producers,
        )

    @classmethod
    def from_overrides(cls, base: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
        """`base` with a topic's own settings, given as text by topic key; keys that no log reads are passed over.

        Raises:
            ValueError: a value that is not of its type; the controller let none in.
        """
        changes: dict[str, Any] = {}
        for item in dataclasses.fields(cls) if overrides else ():
            spec = cast(OptionSpec, item.metadata["option"])
            text = overrides.get(spec.topic_key)
            row = setting(Scope.TOPIC, spec.topic_key)
            if text is not None and row is not None:
                value = row.parse(text)
                changes[item.name] = tuple(value) if isinstance(value, list) else value
        return dataclasses.replace(base, **changes) if changes else base
