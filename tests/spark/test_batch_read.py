"""Batch queries: the records that they read, their start and end offsets, and their columns."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.queries import ON_BOTH, load, numbered, rows, values
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.node import Node

DAY_MS = 86_400_000
T0_MS = 1_700_000_000_123


def produce_at(bootstrap: str, topic: str, times_ms: list[int], partition: int = 0) -> None:
    """One record a time, its number as the value."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, time_ms in enumerate(times_ms):
        producer.produce(topic, b"%d" % number, partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


@ON_BOTH
def test_every_column_is_what_was_produced(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1, retention_ms=-1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v0", b"k0", timestamp=T0_MS, headers=[("h", b"1"), ("h", None), ("ü", b"")])
    producer.produce(topic, None, b"k1", timestamp=T0_MS + 1)
    producer.produce(topic, b"", None, timestamp=T0_MS + 2)
    assert producer.flush(30) == 0
    found = load(spark, bootstrap, subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    assert [(r.key, r.value) for r in found] == [(b"k0", b"v0"), (b"k1", None), (None, b"")]
    assert [(r.topic, r.partition, r.offset, r.timestampType) for r in found] == [(topic, 0, n, 0) for n in range(3)]
    assert [(h.key, h.value) for h in found[0].headers] == [("h", b"1"), ("h", None), ("ü", b"")]
    assert [r.headers for r in found[1:]] == [None, None]
    epoch_us = load(spark, bootstrap, subscribe=topic).selectExpr("unix_micros(timestamp) AS t").collect()
    assert sorted(r.t for r in epoch_us) == [(T0_MS + n) * 1000 for n in range(3)]


def test_the_schema_is_that_of_sparks_kafka_source(spark: Any, odradek: str) -> None:
    plain = load(spark, odradek, subscribe="any").schema.simpleString()
    columns = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    assert plain == f"struct<{columns}>"
    with_headers = load(spark, odradek, subscribe="any", includeHeaders="true").schema.simpleString()
    assert with_headers == f"struct<{columns},headers:array<struct<key:string,value:binary>>>"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_codecs(spark: Any, bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic)
    sent = [(b"k%d" % n, b"value %d " % n * (n % 50)) for n in range(3000)]
    produce_all(bootstrap, topic, sent, compression_type=codec, linger_ms=50)
    found = rows(load(spark, bootstrap, subscribe=topic))
    assert [row[1:] for row in found] == [(n, key, value) for n, (key, value) in enumerate(sent)]


def test_records_larger_than_one_fetch(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, max_message_bytes=12_000_000)
    sent = [(None, bytes([n]) * size) for n, size in enumerate([9_000_000, 1, 5_000_000, 4_194_304])]
    produce_all(bootstrap, topic, sent, message_max_bytes=12_000_000)
    found = load(spark, bootstrap, subscribe=topic).selectExpr("offset", "md5(value) AS sum", "length(value) AS size")
    assert [(r.sum, r.size) for r in found.orderBy("offset").collect()] == [
        (hashlib.md5(value, usedforsecurity=False).hexdigest(), len(value)) for _, value in sent
    ]


def test_a_start_behind_the_end_is_refused(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic, retention_ms=-1)
    produce_at(odradek, topic, [T0_MS + number for number in range(10)], 0)
    for options, wrong in (
        ({"startingOffsets": 7, "endingOffsets": 3}, "from 7 to 3"),
        ({"startingTimestamp": T0_MS + 6, "endingTimestamp": T0_MS + 2}, "from 6 to 2"),
        ({"startingTimestamp": T0_MS + 6, "endingOffsets": 5}, "from 6 to 5"),
    ):
        given = {
            name: json.dumps({topic: {"0": value}}) if name.endswith("Offsets") else value
            for name, value in options.items()
        }
        with pytest.raises(Exception, match=f"would start behind its end: {topic}-0 {wrong}"):
            load(spark, odradek, subscribe=topic, **given).count()
    same = json.dumps({topic: {"0": 3}})
    assert load(spark, odradek, subscribe=topic, startingOffsets=same, endingOffsets=same).count() == 0


def test_subscribe_to_several_and_by_pattern(spark: Any, odradek: str, topic: str) -> None:
    for suffix in ("-a", "-b", "-c", "-bb"):
        create_topic(odradek, topic + suffix, 2)
        produce_all(odradek, topic + suffix, [(None, f"{suffix}{n}".encode()) for n in range(5)])
    two = load(spark, odradek, subscribe=f"{topic}-a, {topic}-c").groupBy("topic").count().collect()
    assert {(r.topic, r["count"]) for r in two} == {(f"{topic}-a", 5), (f"{topic}-c", 5)}
    for pattern, suffixes in ((f"{topic}-[ab]", ("-a", "-b", "-bb")), (f"^{topic}-[ab]$", ("-a", "-b"))):
        found = load(spark, odradek, subscribePattern=pattern)
        assert sorted(values(found)) == sorted(f"{s}{n}".encode() for s in suffixes for n in range(5))


def test_assign_reads_only_these_partitions(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 3, retention_ms=-1)
    for partition in range(3):
        produce_at(bootstrap, topic, [T0_MS] * (partition + 1), partition)
    found = rows(load(spark, bootstrap, assign=json.dumps({topic: [2, 0]})))
    assert [row[:2] for row in found] == [(0, 0), (2, 0), (2, 1), (2, 2)]


def test_starting_and_ending_offsets(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2, retention_ms=-1)
    for partition in (0, 1):
        produce_at(bootstrap, topic, [T0_MS] * 100, partition)
    found = load(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 10, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 12, "1": 3}}),
    )
    assert [row[:2] for row in rows(found)] == [(0, 10), (0, 11), (1, 0), (1, 1), (1, 2)]
    rest = load(spark, bootstrap, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 98, "1": 100}}))
    assert [row[:2] for row in rows(rest)] == [(0, 98), (0, 99)]


def test_by_timestamp(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2, retention_ms=-1)
    produce_at(bootstrap, topic, [T0_MS + n * DAY_MS for n in range(10)], 0)
    window = {"startingTimestamp": T0_MS + 3 * DAY_MS - 5, "endingTimestamp": T0_MS + 6 * DAY_MS}
    patient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(load(spark, bootstrap, subscribe=topic, **window, **patient)) == [b"3", b"4", b"5"]
    each = json.dumps({topic: {"0": T0_MS + 8 * DAY_MS, "1": 0}})
    assert values(load(spark, bootstrap, subscribe=topic, startingOffsetsByTimestamp=each, **patient)) == [b"8", b"9"]
    late = load(spark, bootstrap, subscribe=topic, startingTimestamp=T0_MS + 99 * DAY_MS, **patient)
    assert values(late) == [], "no record is as young: it starts at the end"
    with pytest.raises(Exception, match="has no record at or after"):
        load(spark, bootstrap, subscribe=topic, startingTimestamp=T0_MS + 99 * DAY_MS).count()
    stamped = load(spark, bootstrap, subscribe=topic, endingTimestamp=T0_MS + 1).collect()
    assert [r.timestamp.astimezone(UTC) for r in stamped] == [datetime.fromtimestamp(T0_MS / 1000, UTC)]


def test_log_append_time_is_the_brokers(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, message_timestamp_type="LogAppendTime")
    produce_at(bootstrap, topic, [T0_MS, T0_MS + 1])
    found = load(spark, bootstrap, subscribe=topic).collect()
    assert {r.timestampType for r in found} == {1}
    assert all(r.timestamp.timestamp() * 1000 > T0_MS + DAY_MS for r in found)


def test_one_partition_is_cut_into_tasks(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(1000), linger_ms=100)
    frame = load(spark, odradek, subscribe=topic, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == [b"%d" % n for n in range(1000)]
    assert load(spark, odradek, subscribe=topic, maxRecordsPerPartition=300).rdd.getNumPartitions() == 4


def test_an_empty_topic_has_no_rows(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 3)
    assert load(spark, odradek, subscribe=topic).count() == 0


def test_deleted_records_are_a_loss_only_where_they_were_asked_for(spark: Any, bootstrap: str, topic: str) -> None:
    from confluent_kafka import TopicPartition

    from tests.support.clients.confluent import admin

    create_topic(bootstrap, topic)
    numbered(bootstrap, topic, range(100))
    client = admin(bootstrap)
    for future in client.delete_records([TopicPartition(topic, 0, 40)]).values():
        future.result(timeout=30)
    assert values(load(spark, bootstrap, subscribe=topic))[0] == b"40"
    from_ten = json.dumps({topic: {"0": 10}})
    with pytest.raises(Exception, match=r"offsets 10 to 39 \(30 offsets\), the log now starts at 40"):
        load(spark, bootstrap, subscribe=topic, startingOffsets=from_ten).count()
    assert load(spark, bootstrap, subscribe=topic, startingOffsets=from_ten, failOnDataLoss="false").count() == 60
    to_twenty = json.dumps({topic: {"0": 20}})
    with pytest.raises(Exception, match=r"offsets 10 to 19 \(10 offsets\)"):  # what was asked for, and no more
        load(spark, bootstrap, subscribe=topic, startingOffsets=from_ten, endingOffsets=to_twenty).count()
    behind = json.dumps({topic: {"0": 101}})
    with pytest.raises(
        Exception, match=f"endingOffsets is beyond the end of the log: {topic}-0 ends at 100, before 101"
    ):
        load(spark, bootstrap, subscribe=topic, endingOffsets=behind).count()
    assert load(spark, bootstrap, subscribe=topic, endingOffsets=behind, failOnDataLoss="false").count() == 60


@ON_BOTH
def test_transactions_are_respected(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for round_number in range(6):
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic, f"{round_number}.{n}".encode())
        if round_number % 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    committed = [f"{r}.{n}".encode() for r in (0, 2, 4) for n in range(3)]
    assert values(load(spark, bootstrap, subscribe=topic)) == committed
    everything = values(load(spark, bootstrap, subscribe=topic, kafka_isolation_level="read_uncommitted"))
    assert everything == [f"{r}.{n}".encode() for r in range(6) for n in range(3)] + [b"open"]
    producer.abort_transaction(30)
    # With small pieces a task may begin inside an aborted transaction.
    assert values(load(spark, bootstrap, subscribe=topic, maxRecordsPerPartition=2)) == committed


def test_gaps_are_no_loss(spark: Any, tmp_path: Path, topic: str) -> None:
    """Compaction leaves a few offsets of many, and the log ends with a marker that is no record."""
    with Node(tmp_path, {"log.cleaner.backoff.ms": 100}) as node:
        settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "segment_ms": 200}
        create_topic(node.bootstrap, topic, **settings, min_compaction_lag_ms=0)  # type: ignore[arg-type]  # settings are texts and numbers
        for sent in range(0, 300, 100):
            numbered(node.bootstrap, topic, range(sent, sent + 100))
            time.sleep(0.3)
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"300", b"last")
        producer.commit_transaction(30)
        deadline = time.monotonic() + 200
        left = [*(b"%d" % n for n in range(290, 300)), b"300"]
        while sorted(found := values(load(spark, node.bootstrap, subscribe=topic))) != left:
            assert time.monotonic() < deadline, f"{len(found)} records are left: it was not compacted to the end"
            time.sleep(0.5)
        pieces = load(spark, node.bootstrap, subscribe=topic, maxRecordsPerPartition=40)
        assert pieces.rdd.getNumPartitions() == 8, "302 offsets"
        assert values(pieces) == found
