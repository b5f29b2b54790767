"""The configuration of a log from the settings of its topic: defaults, codecs and levels, ages, rules for batches."""

from __future__ import annotations

import dataclasses

import pytest

from odradek.log.config import NEVER, LogConfig
from odradek.record.validation import BatchRules
from odradek.settings.table import Scope, setting


def test_the_defaults_are_kafkas() -> None:
    """Each field has the default of the topic's setting, or of the broker's if only brokers have the setting."""
    compared = 0
    for field in dataclasses.fields(LogConfig):
        spec = field.metadata["option"]
        row = setting(Scope.TOPIC, spec.topic_key) or setting(Scope.BROKER, spec.key)
        assert row is not None and row.default is not None, field.name
        kafkas = row.parse(row.default)
        assert getattr(LogConfig(), field.name) == (tuple(kafkas) if isinstance(kafkas, list) else kafkas), field.name
        compared += 1
    assert compared > 20


@pytest.mark.parametrize(
    ("compression", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", 0, None),
        ("gzip", 1, 11),
        ("snappy", 2, None),
        ("lz4", 3, 12),
        ("zstd", 4, 13),
    ],
)
def test_a_codec_has_a_number_and_its_own_level(compression: str, codec: int | None, level: int | None) -> None:
    config = LogConfig(
        compression_type=compression, compression_gzip_level=11, compression_lz4_level=12, compression_zstd_level=13
    )
    assert (config.codec, config.codec_level) == (codec, level)


@pytest.mark.parametrize(
    ("policy", "compacted", "deletes"),
    [(("delete",), False, True), (("compact",), True, False), (("compact", "delete"), True, True), ((), False, False)],
)
def test_policies_may_be_both(policy: tuple[str, ...], compacted: bool, deletes: bool) -> None:
    config = LogConfig(cleanup_policy=policy)
    assert (config.compacted, config.deletes) == (compacted, deletes)


def test_a_compacted_log_rolls_within_its_largest_lag() -> None:
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10).roll_ms == 100
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10, cleanup_policy=("compact",)).roll_ms == 10
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=1000, cleanup_policy=("compact",)).roll_ms == 100


def test_the_rules_of_batches_are_the_settings() -> None:
    assert LogConfig().batch_rules() == BatchRules(1_048_588, False, True, NEVER, 3_600_000, 64 << 20, 2**31 - 9)
    config = LogConfig(
        max_message_bytes=100,
        cleanup_policy=("compact",),
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=3,
        message_timestamp_after_max_ms=4,
        max_decompressed_batch_bytes=401,
        max_decompressed_message_bytes=7,
        trust_producers=True,
    )
    assert config.batch_rules() == BatchRules(100, True, False, 3, 4, 401, 7, True)
    larger = dataclasses.replace(config, max_message_bytes=101)
    assert larger.batch_rules().max_decompressed_bytes == 404, "four times max.message.bytes where that is more"


def test_a_topics_own_settings_come_before_the_brokers() -> None:
    base = LogConfig(segment_bytes=5000, retention_ms=7)
    assert LogConfig.from_overrides(base, {}) is base
    assert LogConfig.from_overrides(base, {"leader.replication.throttled.replicas": "*"}) is base
    own = {"retention.ms": "9", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25"}
    assert LogConfig.from_overrides(base, own) == dataclasses.replace(
        base, retention_ms=9, cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=0.25
    )
