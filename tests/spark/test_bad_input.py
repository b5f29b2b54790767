"""What goes wrong outside of a query is one sentence that says what to do; no data is lost, no batch half written.

Wrong options, topics that do not exist and brokers that do not answer a batch query are in `test_bad_options`, records
that a running query lost and topics that were made anew in `test_stream_read`, dead letters in `test_values`, columns
that do not fit in `test_table_sinks`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek import exact_sink
from pyspark_odradek.errors import ClusterError, StagingError
from pyspark_odradek.sink import stream_writer
from pyspark_odradek.task import Task
from tests.spark.queries import drain, drained, load_stream, numbered
from tests.spark.test_exact_sink import VALUE, copied, start_copy
from tests.support.clients import admin, create_topic, produce_all
from tests.support.file_system import small_tmpfs
from tests.support.node import Node

ROUTED = StructType([StructField("value", StringType()), StructField("topic", StringType())])


def sentences(error: BaseException | None) -> list[str]:
    """Our own lines in what Spark shows."""
    return [line for line in str(error).splitlines() if line.startswith("pyspark_odradek.errors.")]


def ended(query: Any) -> str:
    """The one sentence that a query has ended with."""
    with pytest.raises(Exception) as raised:
        query.awaitTermination(60)
    (said,) = set(sentences(raised.value))
    return said


def to_nothing(stream: Any, folder: Path) -> Any:
    return stream.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()


def test_a_checkpoint_of_another_query(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """It is refused before anything is read; failOnDataLoss=false goes on with what both have."""
    for name in (topic, f"{topic}-other"):
        create_topic(odradek, name)
        numbered(odradek, name, range(10))
    drain(load_stream(spark, odradek, subscribe=topic), tmp_path)
    with pytest.raises(Exception) as raised:
        drain(load_stream(spark, odradek, subscribe=f"{topic}-other"), tmp_path)
    (said,) = set(sentences(raised.value))
    assert f"the checkpoint holds offsets of {topic}, which this query does not read: it is another query's" in said
    assert "Start with another checkpointLocation" in said
    drain(load_stream(spark, odradek, subscribe=f"{topic}-other", failOnDataLoss=False), tmp_path)
    assert drained(spark, tmp_path) == sorted([*range(10)] * 2)


def test_a_checkpoint_of_another_source(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    query = rate.selectExpr("STRING(value) value").writeStream.format("noop")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 second").start()
    while not query.lastProgress:
        time.sleep(0.2)
    query.stop()
    said = ended(to_nothing(load_stream(spark, odradek, subscribe=topic).select("value"), tmp_path))
    assert "which is no position in topics: it is of a query over another source" in said


def test_offsets_below_the_log_start(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """A new query that asks for them ends with the exact ones; failOnDataLoss=false begins at the log start."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(50))
    client = admin(odradek)
    for future in client.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(timeout=30)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 20}})}
    said = ended(to_nothing(load_stream(spark, odradek, **options), tmp_path))
    assert f"data was lost: {topic}-0: offsets 20 to 29 (10 offsets), the log now starts at 30" in said
    drain(load_stream(spark, odradek, **options, failOnDataLoss=False), tmp_path)
    assert drained(spark, tmp_path) == [*range(30, 50)]


def test_a_poison_record(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """The stream ends at it with its place and the reason; a restart ends there too, and nothing is passed over."""
    create_topic(odradek, topic)
    good: list[tuple[bytes | None, bytes | None]] = [(None, b'{"id":%d}' % number) for number in range(3)]
    produce_all(odradek, topic, [*good, (None, b'{"id":'), *good])
    decoded = {"subscribe": topic, "valueFormat": "json", "valueSchema": "id LONG"}
    for _ in range(2):
        said = ended(to_nothing(load_stream(spark, odradek, **decoded), tmp_path))
        assert f"{topic}-0, offset 3: not JSON of the schema" in said
        assert "deadLetterTopic" in said and "badRecords" in said
    drain(load_stream(spark, odradek, **decoded, badRecords="null").selectExpr("STRING(value.id) value"), tmp_path)
    assert spark.read.parquet(str(tmp_path / "sink")).count() == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"valueFormat": "json", "valueSchema": "id NUMBERS"}, "NUMBERS"),
        ({"valueFormat": "avro", "valueSchema": "{"}, "is no JSON"),
    ],
)
def test_a_schema_that_cannot_be(spark: Any, options: dict[str, str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        load_stream(spark, "localhost:1", subscribe="t", **options)


def test_columns_of_the_readers_own(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    reader = spark.read.format("odradek").schema("id INT").option("kafka.bootstrap.servers", odradek)
    with pytest.raises(Exception, match=r"the format odradek has its own schema, .*; give none"):
        reader.option("subscribe", topic).load().count()


def test_a_topic_that_is_deleted_while_it_is_read(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    query = to_nothing(load_stream(spark, odradek, subscribe=topic), tmp_path)
    query.processAllAvailable()
    client = admin(odradek)
    client.delete_topics([topic], operation_timeout=30)[topic].result(timeout=30)
    said = ended(query)
    assert f"data was lost: {topic}-0: offset 10, the partition does not exist any more" in said
    assert "Set failOnDataLoss=false to go on with what is left" in said


def test_a_topic_that_is_deleted_between_tasks_and_commit(odradek: str, topic: str, tmp_path: Path) -> None:
    """Nothing of the batch is written, also not to the topic that is still there; created again, the batch fits."""
    for name in (f"{topic}-a", f"{topic}-copy"):
        create_topic(odradek, name, 2)
    made: Any = stream_writer({"kafka.bootstrap.servers": odradek, "checkpointLocation": str(tmp_path)}, ROUTED, False)
    rows = pa.record_batch({"value": ["1", "2"], "topic": [f"{topic}-a", f"{topic}-copy"]})
    staged = made.stage(iter([rows]), "query", "run", 0)
    client = admin(odradek)
    client.delete_topics([f"{topic}-a"], operation_timeout=30)[f"{topic}-a"].result(timeout=30)
    with pytest.raises(ClusterError, match=rf"no such topic: {topic}-a\. It existed when the tasks ran: create it"):
        made.commit([staged], 0)
    assert copied(odradek, topic) == []
    create_topic(odradek, f"{topic}-a", 2)
    made.commit([staged], 0)
    assert copied(odradek, topic) == [2]


def test_a_full_staging_disk(odradek: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mebibyte for two: told in one sentence, nothing left there and nothing written; with room it goes on."""
    create_topic(odradek, f"{topic}-copy", 2)
    monkeypatch.setattr(exact_sink, "streaming_task", lambda: Task("query", "run", 0, 0, 0))
    rows = pa.record_batch({"value": [str(number) + " " * 1000 for number in range(2000)]})
    with small_tmpfs(tmp_path / "disk", 1 << 20):
        options = {"kafka.bootstrap.servers": odradek, "topic": f"{topic}-copy"}
        made: Any = stream_writer(options | {"stagingLocation": str(tmp_path / "disk")}, VALUE, False)
        with pytest.raises(StagingError, match=r"a task cannot stage its records .*No space left.* Make room there"):
            made.write(iter([rows]))
        assert [path for path in (tmp_path / "disk").rglob("*") if path.is_file()] == []
        made.commit([made.write(iter([rows.slice(0, 500)]))], 0)
    assert copied(odradek, topic) == list(range(500))


def test_a_broker_that_is_down_at_the_start_of_a_stream(spark: Any, tmp_path: Path) -> None:
    """The query waits for it as long as kafka.default.api.timeout.ms says, and ends with one sentence then."""
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, "late")
        numbered(node.bootstrap, "late", range(10))
        node.kill()
        stream = load_stream(spark, node.bootstrap, subscribe="late", kafka_default_api_timeout_ms=1000)
        said = ended(to_nothing(stream, tmp_path))
        assert f"{node.bootstrap} did not tell the topics in 1 s (kafka.default.api.timeout.ms)" in said
        query = to_nothing(load_stream(spark, node.bootstrap, subscribe="late"), tmp_path)
        try:
            time.sleep(1)
            node.start()
            query.processAllAvailable()
            assert query.lastProgress.numInputRows == 10 or sum(p.numInputRows for p in query.recentProgress) == 10
        finally:
            query.stop()


def test_another_driver_on_the_checkpoint(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """What took over goes on; the older query ends with nothing of its batch written. Two JVMs: the slow tests."""
    for name in (topic, f"{topic}-copy"):
        create_topic(odradek, name, 2)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "topic": f"{topic}-copy"}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    stream = load_stream(spark, odradek, subscribe=topic).select("value")
    query = stream.writeStream.format("odradek").options(**options).start()
    query.processAllAvailable()
    following = query.lastProgress.batchId + 1
    other: Any = stream_writer(options, VALUE, False)
    rows = pa.record_batch({"value": ["1000"]})
    other.commit([other.stage(iter([rows]), str(query.id), "another-run", following)], following)
    numbered(odradek, topic, range(10, 20))
    said = ended(query)
    assert "two drivers run on one checkpoint" in said or "another driver runs on the same checkpoint" in said
    assert copied(odradek, topic) == [*range(10), 1000]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_goes_away_for_a_minute(spark: Any, topic: str, tmp_path: Path) -> None:
    """Source and exactly-once sink wait for it and go on: every record once, in a query that did not end."""
    with Node(tmp_path / "node") as node:
        for name in (topic, f"{topic}-copy"):
            create_topic(node.bootstrap, name, 2)
        numbered(node.bootstrap, topic, range(3000))
        query = start_copy(spark, node.bootstrap, topic, tmp_path)
        while not copied(node.bootstrap, topic) and query.isActive:
            time.sleep(0.1)
        node.kill()
        time.sleep(60)
        node.start()
        assert query.awaitTermination(300), "the copy did not end"
        assert copied(node.bootstrap, topic) == list(range(3000))
