"""Every option of Spark's Kafka source and sink, as Spark 4.3 documents them, has its place here.

It is honoured under its name, with Spark's default; or it is refused, or accepted with a warning that names the
replacement. None is ignored in silence.
"""

from __future__ import annotations

import logging

import pytest

from odradek.security.sasl.config import AssertionConfig, OwnTokenConfig
from odradek.settings.broker import honoured_keys
from pyspark_odradek.errors import OptionError
from pyspark_odradek.options import EARLIEST, LATEST, READ_SETTINGS, ReadOptions, Timestamps, parse_read_options
from pyspark_odradek.source.schema import source_schema
from pyspark_odradek.topic_sink.sink_options import parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
TOPIC = SERVERS | {"subscribe": "t"}

# name -> (a value, the field of ReadOptions, its content then, its default content; for batch queries only)
HONOURED: dict[str, tuple[str, str, object, object, bool]] = {
    "startingTimestamp": ("1000", "starting", Timestamps(1000), LATEST, False),
    "startingOffsetsByTimestamp": (
        '{"t": {"0": 1000}}',
        "starting",
        Timestamps(by_partition_ms={"t": {0: 1000}}),
        LATEST,
        False,
    ),
    "startingOffsets": ('{"t": {"0": 23, "1": -1, "2": -2}}', "starting", {"t": {0: 23, 1: -1, 2: -2}}, LATEST, False),
    "endingTimestamp": ("1000", "ending", Timestamps(1000), LATEST, True),
    "endingOffsetsByTimestamp": (
        '{"t": {"0": 1000}}',
        "ending",
        Timestamps(by_partition_ms={"t": {0: 1000}}),
        LATEST,
        True,
    ),
    "endingOffsets": ('{"t": {"0": 50, "1": -1}}', "ending", {"t": {0: 50, 1: -1}}, LATEST, True),
    "failOnDataLoss": ("false", "fail_on_data_loss", False, True, False),
    "kafkaConsumer.pollTimeoutMs": ("512", "read_timeout_ms", 512, None, False),
    "maxOffsetsPerTrigger": ("7", "max_offsets_per_trigger", 7, None, False),
    "minOffsetsPerTrigger": ("7", "min_offsets_per_trigger", 7, None, False),
    "maxTriggerDelay": ("2m", "max_trigger_delay_ms", 120_000, 15 * 60_000, False),
    "minPartitions": ("7", "min_partitions", 7, None, False),
    "maxRecordsPerPartition": ("7", "max_records_per_partition", 7, None, False),
    "includeHeaders": ("true", "include_headers", True, False, False),
    "startingOffsetsByTimestampStrategy": ("latest", "starting_strategy", "latest", "error", False),
}
SUBJECTS: dict[str, tuple[str, str, object]] = {
    "subscribe": ("a,b", "topics", ("a", "b")),
    "subscribePattern": ("a.*", "pattern", "a.*"),
    "assign": ('{"a": [0, 1]}', "assigned", {"a": (0, 1)}),
}
REPORTED = {
    "groupIdPrefix": "groupId makes the query a member",
    "kafka.group.id": "groupId makes the query a member",
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms",
    "fetchOffset.retryIntervalMs": "asked for again after 50 ms",
}
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "groupId commits it",
    "kafka.key.deserializer": "use cast",
    "kafka.value.deserializer": "use cast",
    "kafka.key.serializer": "cast the column",
    "kafka.value.serializer": "cast the column",
    "kafka.interceptor.classes": "are Java classes",
    "kafka.partitioner.class": "a column partition says otherwise",
}


@pytest.mark.parametrize("name", HONOURED)
def test_honoured_options_are_parsed(name: str, caplog: pytest.LogCaptureFixture) -> None:
    value, field, given, default, for_batch = HONOURED[name]
    for spelt in (name, name.lower()):
        parsed = parse_read_options(TOPIC | {spelt: value}, streaming=not for_batch)
        assert getattr(parsed, field) == given
    assert getattr(parse_read_options(TOPIC, streaming=True), field) == default
    assert getattr(ReadOptions(), field) == default
    assert caplog.records == []


@pytest.mark.parametrize("name", SUBJECTS)
def test_subjects_are_parsed(name: str) -> None:
    value, field, given = SUBJECTS[name]
    assert getattr(parse_read_options(SERVERS | {name: value}, streaming=True), field) == given


def test_a_batch_starts_at_the_beginning() -> None:
    assert parse_read_options(TOPIC, streaming=False).starting == EARLIEST


@pytest.mark.parametrize("name", REPORTED)
def test_options_without_effect_are_reported(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_odradek"):
        parse_read_options(TOPIC | {name: "1"}, streaming=True)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{name} has no effect in the format odradek: ")
    assert REPORTED[name] in said


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_options_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not supported: .*{REFUSED[name]}"):
        parse_read_options(TOPIC | {name: "x"}, streaming=True)
    with pytest.raises(OptionError, match=f"{name} is not supported: .*{REFUSED[name]}"):
        parse_sink_options(SERVERS | {"topic": "t", name: "x"}, streaming=True, overwrite=False)


def test_the_sinks_two() -> None:
    parsed = parse_sink_options(SERVERS | {"topic": "t", "includeHeaders": "false"}, streaming=True, overwrite=False)
    assert (parsed.topic, parsed.with_headers) == ("t", False)


def test_the_columns() -> None:
    plain = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    assert source_schema(False).simpleString() == f"struct<{plain}>"
    assert source_schema(True).simpleString() == f"struct<{plain},headers:array<struct<key:string,value:binary>>>"


def test_no_setting_of_tokens_is_reported_as_without_effect() -> None:
    """The connector has the names itself: to load what honours them takes as long as all else that a process loads."""
    assert honoured_keys([OwnTokenConfig, AssertionConfig]) <= set(READ_SETTINGS)
