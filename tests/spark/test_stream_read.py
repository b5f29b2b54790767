"""Streaming queries: limits, restarts from the checkpoint, new partitions, lost data, a broker that dies."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException

from tests.spark.queries import ON_BOTH, drain, drained, load_stream, numbered
from tests.support.clients.cli import odradek as command
from tests.support.clients.confluent import admin, create_topic
from tests.support.nodes.apache_kafka import require_kafka, run_tool
from tests.support.nodes.node import Node


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """A group's committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [found.offset for found in consumer.committed(asked, timeout=30)]
    except KafkaException as error:  # the topic of offsets is only being made
        assert error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS), error
        return []
    finally:
        consumer.close()


def test_a_restart_goes_on_where_the_checkpoint_ends(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, 3)
    for sent in (500, 1000):
        numbered(bootstrap, topic, range(sent - 500, sent))
        query = drain(load_stream(spark, bootstrap, subscribe=topic), tmp_path)
        assert sum(p["numInputRows"] for p in query.recentProgress) == 500
    assert drained(spark, tmp_path) == list(range(1000))


def test_a_batch_that_was_planned_and_not_finished_is_read_again(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(300))
    drain(load_stream(spark, odradek, subscribe=topic, maxOffsetsPerTrigger=100), tmp_path)
    commits = sorted((tmp_path / "sink-checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(commits) >= 3
    # A crash between the sink's commit and Spark's leaves the offsets without the commit.
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    numbered(odradek, topic, range(300, 400))
    drain(load_stream(spark, odradek, subscribe=topic, maxOffsetsPerTrigger=100), tmp_path)
    assert drained(spark, tmp_path) == list(range(400)), "the file sink leaves out the batch that it has"


def test_available_now_ends_at_what_was_there_and_keeps_the_limit(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(1000))
    query = drain(load_stream(spark, odradek, subscribe=topic, maxOffsetsPerTrigger=250), tmp_path)
    sizes = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sum(sizes) == 1000
    assert max(sizes) <= 252, "at most one record a partition above the limit"
    assert drained(spark, tmp_path) == list(range(1000))


def test_bytes_per_trigger(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    producer_values = [(None, b"%4d" % n + b" " * 996) for n in range(1000)]
    from tests.support.clients.confluent import produce_all

    produce_all(odradek, topic, producer_values, linger_ms=20)
    stream = load_stream(spark, odradek, subscribe=topic, maxBytesPerTrigger="200k")
    query = drain(stream.selectExpr("trim(CAST(value AS STRING)) AS value"), tmp_path)
    sizes = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sum(sizes) == 1000
    assert all(100 <= size <= 250 for size in sizes[:-1]), sizes


def test_min_offsets_wait_until_the_delay_is_over(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(5))
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 100}

    def start(delay: str) -> Any:
        stream = load_stream(spark, odradek, **options, maxTriggerDelay=delay)
        return stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / delay)).start()

    def rows(query: Any) -> int:
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def wait_for(query: Any, count: int, why: str) -> None:
        deadline = time.monotonic() + 150
        while rows(query) < count:
            assert query.isActive and time.monotonic() < deadline, why
            time.sleep(0.05)

    patient = start("1h")
    try:
        wait_for(patient, 5, "the first batch of a run does not wait")
        numbered(odradek, topic, range(10))
        time.sleep(1.5)
        assert rows(patient) == 5, "10 are too few"
        numbered(odradek, topic, range(90))
        wait_for(patient, 105, "100 are enough")
    finally:
        patient.stop()
    hasty = start("1s")
    try:
        wait_for(hasty, 105, "the first batch of a run does not wait")
        numbered(odradek, topic, range(10))
        wait_for(hasty, 115, "the delay did not end the wait")
    finally:
        hasty.stop()


def test_a_stream_starts_at_the_end_by_default(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(50))
    drain(load_stream(spark, odradek, subscribe=topic, startingOffsets="latest"), tmp_path)
    numbered(odradek, topic, range(50, 60))
    drain(load_stream(spark, odradek, subscribe=topic, startingOffsets="latest"), tmp_path)
    assert drained(spark, tmp_path) == list(range(50, 60))


def test_new_partitions_are_read_from_their_beginning(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, 1)
    numbered(bootstrap, topic, range(100))
    drain(load_stream(spark, bootstrap, subscribe=topic), tmp_path)
    client = admin(bootstrap)
    for future in client.create_partitions([NewPartitions(topic, 4)]).values():
        future.result(timeout=30)
    until(4, lambda: len(client.list_topics(topic, timeout=60).topics[topic].partitions))
    numbered(bootstrap, topic, range(100, 300))
    drain(load_stream(spark, bootstrap, subscribe=topic), tmp_path)
    assert drained(spark, tmp_path) == list(range(300))


def test_new_topics_of_a_pattern_are_found_by_a_running_query(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, f"{topic}-0")
    numbered(odradek, f"{topic}-0", range(10))
    stream = load_stream(spark, odradek, subscribePattern=f"{topic}-.*")
    query = stream.writeStream.format("memory").queryName("found").start()
    try:
        query.processAllAvailable()
        create_topic(odradek, f"{topic}-1")
        numbered(odradek, f"{topic}-1", range(10, 20))
        deadline = time.monotonic() + 150
        while spark.table("found").count() < 20:
            assert time.monotonic() < deadline, "the new topic was not read"
            time.sleep(0.1)
        assert sorted(int(r.value) for r in spark.table("found").collect()) == list(range(20))
    finally:
        query.stop()


def members(bootstrap: str, group: str) -> list[tuple[str, int]]:
    """(client id, number of partitions) of each member."""
    client = admin(bootstrap)
    try:
        found = client.describe_consumer_groups([group])[group].result(60)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND, error
        return []
    return [(each.client_id, len(each.assignment.topic_partitions)) for each in found.members]


def until(wanted: Any, look: Any) -> None:
    deadline = time.monotonic() + 100
    while look() != wanted:
        assert time.monotonic() < deadline, look()
        time.sleep(0.2)


@ON_BOTH
def test_the_query_is_a_member_of_its_group(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Its progress is committed batch by batch, it is shown with its partitions, and leaves when it ends."""
    create_topic(bootstrap, topic, 2)
    numbered(bootstrap, topic, range(100))
    group = f"group-of-{topic}"
    stream = load_stream(spark, bootstrap, subscribe=topic, groupId=group, kafka_client_id="my-query")
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        until(100, lambda: sum(committed(bootstrap, group, topic, 2)))
        until([("my-query", 2)], lambda: members(bootstrap, group))
        numbered(bootstrap, topic, range(50))
        until(150, lambda: sum(committed(bootstrap, group, topic, 2)))
    finally:
        query.stop()
    until([], lambda: members(bootstrap, group))
    numbered(bootstrap, topic, range(10))
    drain(load_stream(spark, bootstrap, subscribe=topic, groupId=group), tmp_path)
    assert sum(committed(bootstrap, group, topic, 2)) in (150, 160), "a run that ends is no member, and commits too"


def test_lag_tools_show_the_query(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """Kafka's own command and ours, while the query runs and some records have come that it has not finished."""
    require_kafka()
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(100))
    group = f"group-of-{topic}"
    waits = {
        "minOffsetsPerTrigger": 1000,
        "maxTriggerDelay": "1h",
    }  # after the first batch, for more than comes
    stream = load_stream(spark, odradek, subscribe=topic, groupId=group, kafka_client_id="lagging", **waits)
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        until(100, lambda: sum(committed(odradek, group, topic, 2)))
        until([("lagging", 2)], lambda: members(odradek, group))
        numbered(odradek, topic, range(30))
        mine = command(odradek, "groups", "describe", "--group", group, "--rate-over", 0.1, "--json").json[0]
        shown = {row["partition"]: row for row in mine["offsets"]}
        (member,) = {row["member_id"] for row in shown.values()}
        expected = {number: (row["current_offset"], row["log_end_offset"], row["lag"]) for number, row in shown.items()}
        assert set(expected) == {0, 1} and member
        assert [sum(column) for column in zip(*expected.values(), strict=True)] == [100, 130, 30]
        assert all(row["client_id"] == "lagging" and row["read_per_s"] == 0 for row in shown.values())
        tool = ["--bootstrap-server", odradek, "--describe", "--group", group]
        reported = run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", tool).stdout
        headings, *lines = [line.split() for line in reported.splitlines() if line.strip()]
        theirs = [dict(zip(headings, line, strict=True)) for line in lines]
        numbers = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        assert {tuple(int(row[name]) for name in numbers) for row in theirs} == {
            (number, *row) for number, row in expected.items()
        }
        assert {(row["CONSUMER-ID"], row["CLIENT-ID"]) for row in theirs} == {(member, "lagging")}
    finally:
        query.stop()


def test_lost_data_ends_the_query_with_the_exact_range(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    drain(load_stream(spark, odradek, subscribe=topic), tmp_path)
    numbered(odradek, topic, range(10, 50))
    client = admin(odradek)
    for future in client.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(timeout=30)
    with pytest.raises(Exception, match=r"offsets 10 to 29 \(20 offsets\), the log now starts at 30"):
        drain(load_stream(spark, odradek, subscribe=topic), tmp_path)
    drain(load_stream(spark, odradek, subscribe=topic, failOnDataLoss=False), tmp_path)
    assert drained(spark, tmp_path) == [*range(10), *range(30, 50)]


def test_a_topic_that_was_recreated_is_a_loss(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    drain(load_stream(spark, odradek, subscribe=topic), tmp_path)
    client = admin(odradek)
    client.delete_topics([topic], operation_timeout=30)[topic].result(timeout=30)
    create_topic(odradek, topic)
    numbered(odradek, topic, range(100, 104))
    with pytest.raises(Exception, match=f"{topic}-0: from offset 10 on, another topic has its name now"):
        drain(load_stream(spark, odradek, subscribe=topic), tmp_path)
    drain(load_stream(spark, odradek, subscribe=topic, failOnDataLoss=False), tmp_path)
    assert drained(spark, tmp_path) == [*range(10), *range(100, 104)]


def test_a_first_batch_that_is_run_again_reads_what_came_since(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    """The query starts at the end of the log: Spark asks for its start again when the log is longer."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(50))
    failures = [RuntimeError("once")]
    found: list[int] = []

    def take(rows: Any, batch_id: int) -> None:
        if failures:
            raise failures.pop()
        found.extend(int(row.value) for row in rows.selectExpr("CAST(value AS STRING) AS value").collect())

    def start() -> Any:
        writer = load_stream(spark, odradek, subscribe=topic, startingOffsets="latest").writeStream
        return writer.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()

    query = start()
    with pytest.raises(StreamingQueryException, match="once"):
        query.awaitTermination(150)
    numbered(odradek, topic, range(50, 53))
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(found) == [50, 51, 52]


def test_waiting_records_are_read_where_a_partition_starts_at_its_end(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(20))
    starts = json.dumps({topic: {"0": 0, "1": -1}})
    drain(load_stream(spark, odradek, subscribe=topic, startingOffsets=starts), tmp_path)
    first = spark.read.format("odradek").option("kafka.bootstrap.servers", odradek)
    first = first.option("assign", json.dumps({topic: [0]})).load()
    there = sorted(int(row.value) for row in first.selectExpr("CAST(value AS STRING) AS value").collect())
    assert drained(spark, tmp_path) == there and 0 < len(there) < 20


def test_the_offsets_in_the_checkpoint_are_those_of_sparks_kafka_source(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(20))
    drain(load_stream(spark, odradek, subscribe=topic), tmp_path)
    last = (tmp_path / "sink-checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    ends = json.loads(last)
    (named,) = ends.keys() - {topic}
    assert ends[topic].keys() == {"0", "1"} and sum(ends[topic].values()) == 20
    assert ends[named] == {}, "who sums up what topics have is not led astray by their ids"
    client = admin(odradek)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(timeout=30)
    reported = str(described.topic_id).replace("+", "-").replace("/", "_")  # as Kafka's tools do
    assert named == f"{topic}@{reported}"


def test_a_broker_that_is_killed_does_not_end_the_query(spark: Any, own_node: Node, tmp_path: Path) -> None:
    """kill -9 while records come in and are read; nothing is lost, nothing is there twice."""
    bootstrap = own_node.bootstrap
    create_topic(bootstrap, "steady", 2)
    numbered(bootstrap, "steady", range(100))
    stream = load_stream(spark, bootstrap, subscribe="steady").selectExpr("CAST(value AS STRING) AS value")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "sink-checkpoint"))
    query = writer.option("path", str(tmp_path / "sink")).start()
    try:
        query.processAllAvailable()
        feeding = threading.Thread(
            target=numbered, args=(bootstrap, "steady", range(100, 20_000)), kwargs={"enable_idempotence": True}
        )
        feeding.start()
        time.sleep(0.3)
        own_node.kill()
        time.sleep(1.5)
        own_node.start()
        feeding.join(200)
        assert not feeding.is_alive()
        query.processAllAvailable()
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert drained(spark, tmp_path) == list(range(20_000))
