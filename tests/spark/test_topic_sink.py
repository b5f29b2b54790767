"""The topic sink: records, topics and partitions in both deliveries, and at-least-once delivery."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek.client.librdkafka import DEFAULTS, producer_config
from pyspark_odradek.topic_sink.at_least_once import AT_LEAST_ONCE, StreamTopicWriter
from pyspark_odradek.writers import stream_writer
from tests.spark.queries import ON_BOTH, load, load_stream, numbered, values
from tests.support.clients.confluent import await_ends, create_topic, read_committed


def save(frame: Any, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).mode("append").save()


@ON_BOTH
def test_keys_values_and_headers_arrive(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    frame = spark.createDataFrame(
        [
            (b"k", b"v", [("h", bytearray(b"1")), ("n", None)]),
            (None, b"", None),
            (b"", None, []),
        ],
        "key binary, value binary, headers array<struct<key:string,value:binary>>",
    )
    save(frame.coalesce(1), bootstrap, topic=topic)
    found = [(m.key(), m.value(), m.headers()) for m in read_committed(bootstrap, topic)]
    assert found == [(b"k", b"v", [("h", b"1"), ("n", None)]), (None, b"", None), (b"", None, None)]


def test_strings_are_written_as_utf8(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    save(spark.createDataFrame([("ключ", "Größe")], "key string, value string"), odradek, topic=topic)
    (message,) = read_committed(odradek, topic)
    assert (message.key(), message.value()) == ("ключ".encode(), "Größe".encode())


def test_settings_of_javas_producer_are_mapped_or_reported(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "acks": "all",
        "buffer.memory": "33554432",
        "compression.gzip.level": "1",
        "compression.type": "zstd",
        "compression.zstd.level": "3",
        "max.request.size": "1000000",
        "max.block.ms": "1000",
        "receive.buffer.bytes": "65536",
    }
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "delivery": "at_least_once"}
    options |= {f"kafka.{name}": value for name, value in given.items()}
    schema = StructType([StructField("value", StringType())])
    with caplog.at_level(logging.WARNING, "pyspark_odradek"):
        stream_writer(options, schema, False)
    (said,) = [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()]
    assert said.startswith("kafka.max.block.ms has no effect on the at-least-once sink: a task waits for room")
    assert dict(producer_config(given).items() - DEFAULTS.items()) == {
        "acks": "all",
        "compression.level": "3",
        "compression.type": "zstd",
        "message.max.bytes": "1000000",
        "queue.buffering.max.kbytes": "32768",
        "socket.receive.buffer.bytes": "65536",
    }


def test_topic_and_partition_of_each_row(spark: Any, odradek: str, topic: str) -> None:
    for suffix in "ab":
        create_topic(odradek, topic + suffix, 3)
    rows = [(topic + "a", 2, "1"), (topic + "b", 0, "2"), (topic + "b", 1, "3")]
    save(spark.createDataFrame(rows, "topic string, partition int, value string"), odradek)
    for suffix, expected in (("a", {(2, b"1")}), ("b", {(0, b"2"), (1, b"3")})):
        found = read_committed(odradek, topic + suffix, 3)
        assert {(m.partition(), m.value()) for m in found} == expected
    save(spark.createDataFrame([("nowhere", "4")], "topic string, value string"), odradek, topic=topic + "a")
    assert b"4" in {m.value() for m in read_committed(odradek, topic + "a", 3)}, "the option goes before the column"


def test_keys_go_where_kafkas_java_client_sends_them(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 7)
    keys = [f"key-{n}".encode() for n in range(200)]
    save(spark.createDataFrame([(key, b"v") for key in keys], "key binary, value binary"), odradek, topic=topic)
    placed = {m.key(): m.partition() for m in read_committed(odradek, topic, 7)}
    assert placed == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, written down from its definition: seed 0x9747b28c, 32 bits."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    state = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mixer & mask
        word = (word ^ word >> 24) * mixer & mask
        state = (state * mixer & mask) ^ word
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * mixer & mask
    state = (state ^ state >> 13) * mixer & mask
    return state ^ state >> 15


def test_a_stream_from_topic_to_topic(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, f"{topic}-copy", 3)
    for sent in (500, 1000):
        numbered(bootstrap, topic, range(sent - 500, sent))
        copied = load_stream(spark, bootstrap, subscribe=topic).select("key", "value")
        writer = copied.writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", f"{topic}-copy").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(150)
    await_ends(bootstrap, f"{topic}-copy", 3)
    found = sorted(int(value) for value in values(load(spark, bootstrap, subscribe=f"{topic}-copy")))
    assert found == list(range(1000))


def test_a_batch_that_runs_again_is_written_again(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """At-least-once: after a crash between the sink's write and Spark's commit the records exist twice."""
    create_topic(odradek, topic)
    create_topic(odradek, f"{topic}-copy")
    numbered(odradek, topic, range(10))

    def copy() -> None:
        stream = load_stream(spark, odradek, subscribe=topic).select("key", "value")
        writer = stream.writeStream.format("odradek").option("kafka.bootstrap.servers", odradek)
        writer = writer.option("topic", f"{topic}-copy").option("checkpointLocation", str(tmp_path / "c"))
        writer = writer.option("delivery", "at_least_once")
        assert writer.trigger(availableNow=True).start().awaitTermination(150)

    copy()
    commit = tmp_path / "c" / "commits" / "0"
    commit.unlink()
    (commit.parent / ".0.crc").unlink(missing_ok=True)
    copy()
    counts = load(spark, odradek, subscribe=f"{topic}-copy").groupBy("value").count().collect()
    assert [r["count"] for r in counts] == [2] * 10


def test_the_sink_says_that_it_is_at_least_once(odradek: str, caplog: pytest.LogCaptureFixture) -> None:

    options = {"kafka.bootstrap.servers": odradek, "topic": "any", "delivery": "at_least_once"}
    writer = stream_writer(options, StructType([StructField("value", StringType())]), False)
    assert isinstance(writer, StreamTopicWriter)
    with caplog.at_level(logging.WARNING, logger="pyspark_odradek"):
        writer.commit([], 0)
        writer.commit([], 1)
    assert [record.getMessage() for record in caplog.records] == [AT_LEAST_ONCE], "once a query, at its first batch"


def test_a_refused_record_fails_the_write(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic, max_message_bytes=2000)
    frame = spark.createDataFrame([("x" * 100_000,)], "value string")
    with pytest.raises(Exception, match="records were not acknowledged"):
        save(frame, odradek, topic=topic)


def test_client_settings_reach_the_producer(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    frame = spark.createDataFrame([("a" * 100_000,)], "value string")
    save(frame, odradek, **{"topic": topic, "kafka.compression.type": "zstd", "kafka.acks": "1"})
    assert Producer({"bootstrap.servers": odradek}).list_topics(topic, timeout=60).topics[topic].error is None
    (message,) = read_committed(odradek, topic)
    assert message.value() == b"a" * 100_000
