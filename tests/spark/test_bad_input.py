"""An error outside of a query is one sentence that says what to do; no data is lost, no batch half written.

Wrong options, topics that do not exist and brokers that do not answer a batch query are in `test_bad_options`, records
that a running query lost and topics that were recreated in `test_stream_read`, dead letters in `test_values`, columns
that do not fit in `test_table_sinks`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from odradek.protocol.apis import ApiKey
from pyspark_odradek.client import connection
from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.client.offsets import OffsetRange, from_json, to_json, topic_ids_in
from pyspark_odradek.client.offsets import TopicPartition as OfTopic
from pyspark_odradek.data_source import OdradekDataSource
from pyspark_odradek.errors import ClusterError, DataLossError, LeaseError, OptionError, StagingError
from pyspark_odradek.last_words import reason
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.options import parse_read_options
from pyspark_odradek.source import fetch, planning
from pyspark_odradek.source.fetch import read_range
from pyspark_odradek.source.schema import source_schema
from pyspark_odradek.standby.commit import create_lease, current_lease
from pyspark_odradek.topic_sink import exact_sink
from pyspark_odradek.writers import stream_writer
from tests.spark.queries import drain, drained, load_stream, numbered
from tests.spark.test_exact_sink import VALUE, copied, start_copy
from tests.support.clients.confluent import admin, create_topic, produce_all, read_all
from tests.support.disks.file_system import small_tmpfs
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

ROUTED = StructType([StructField("value", StringType()), StructField("topic", StringType())])


def ended(query: Any) -> str:
    """The one sentence that a query has ended with."""
    with pytest.raises(Exception) as raised:
        query.awaitTermination(400)
    said = reason(raised.value)
    assert said is not None, raised.value
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
    said = reason(raised.value) or ""
    assert f"the checkpoint holds offsets of {topic}, which this query does not read: it is another query's" in said
    assert "Start with another checkpointLocation" in said
    drain(load_stream(spark, odradek, subscribe=f"{topic}-other", failOnDataLoss=False), tmp_path)
    assert drained(spark, tmp_path) == sorted([*range(10)] * 2)


def test_a_checkpoint_of_another_source(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    query = rate.selectExpr("STRING(value) value").writeStream.format("noop")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 second").start()
    eventually(lambda: query.lastProgress, "the query makes no progress")
    query.stop()
    said = ended(to_nothing(load_stream(spark, odradek, subscribe=topic).select("value"), tmp_path))
    assert "which is not a position in topics: it is of a query over another source" in said


def test_offsets_below_the_log_start(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """A new query that asks for them ends with the exact ones; failOnDataLoss=false begins at the log start."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(50))
    client = admin(odradek)
    for future in client.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(timeout=PATIENCE_S)
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
        ({"valueFormat": "avro", "valueSchema": "{"}, "is not valid JSON"),
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
    client.delete_topics([topic], operation_timeout=30)[topic].result(timeout=PATIENCE_S)
    said = ended(query)
    assert f"data was lost: {topic}-0: from offset 10 on, the partition does not exist any more" in said
    assert "Set failOnDataLoss=false to go on with what is left" in said


def recreate(bootstrap: str, topic: str, partitions: int = 2, numbers: range = range(100, 140)) -> None:
    client = admin(bootstrap)
    client.delete_topics([topic], operation_timeout=30)[topic].result(timeout=PATIENCE_S)
    create_topic(bootstrap, topic, partitions)
    numbered(bootstrap, topic, numbers)


def read_planned(reader: Any, begin: Any) -> list[int]:
    """The numbers in all that a batch from `begin` reads."""
    schema = to_arrow_schema(source_schema(False), timezone="UTC")
    planned = [each.value for each in reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))]
    found = [rows for each in planned for rows in read_range(reader.settings, each, schema, fail_on_data_loss=True)]
    return sorted(int(value) for rows in found for value in rows["value"].to_pylist())


@pytest.mark.parametrize("restarted", [False, True], ids=["while-it-is-read", "while-no-query-runs"])
@pytest.mark.parametrize("fail", [True, False], ids=["fails", "goes-on"])
def test_a_topic_that_is_recreated(odradek: str, topic: str, fail: bool, restarted: bool) -> None:
    """The topic id differs, also where the new topic has more records than the old; it is read from its first one."""
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "failOnDataLoss": str(fail)}
    options |= {"startingOffsets": "earliest", "pollTimeoutMs": "0"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    ends = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(ends, ReadAllAvailable()) == ends
    assert from_json(ends) == {(topic, 0): 4, (topic, 1): 6}
    recreate(odradek, topic)
    if restarted:
        reader = OdradekDataSource(options).streamReader(source_schema(False))
    if fail:
        for _ in range(2):  # a supervisor that starts the query again learns the same
            with pytest.raises(DataLossError, match=f"{topic}-0: from offset 4 on, another topic has its name now"):
                reader.latestOffset(ends, ReadAllAvailable())
            reader = OdradekDataSource(options).streamReader(source_schema(False))
        return
    back = reader.latestOffset(ends, ReadAllAvailable())
    assert from_json(back) == {(topic, 0): 0, (topic, 1): 0} and reader.partitions(ends, back) == []
    assert read_planned(reader, back) == [*range(100, 140)]
    reader.stop()


def test_a_batch_that_was_planned_of_the_topic_before(odradek: str, topic: str) -> None:
    """It is run again by a query that is started when the new one is there: nothing of that one is read."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "startingOffsets": "earliest"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    begin = reader.initialOffset()
    ends = reader.latestOffset(begin, ReadAllAvailable())
    reader.stop()
    recreate(odradek, topic)
    again: Any = OdradekDataSource(options).streamReader(source_schema(False))
    (planned,) = again.partitions(begin, ends)
    assert planned.value.topic_id == topic_ids_in(ends)[topic]
    with pytest.raises(DataLossError, match=f"the topic {topic} was deleted and recreated"):
        list(again.read(planned))
    again.stop()


def test_a_first_batch_that_is_planned_again_leaves_nothing_out(odradek: str, topic: str) -> None:
    """A query that begins at the end of a log, and is started again, asks the log again where that was."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    begin = reader.initialOffset()
    numbered(odradek, topic, range(10, 15))
    ends = reader.latestOffset(begin, ReadAllAvailable())
    reader.stop()
    again: Any = OdradekDataSource(options).streamReader(source_schema(False))
    first = again.partitions(again.initialOffset(), ends)
    following = again.partitions(ends, again.latestOffset(ends, ReadAllAvailable()))
    read = [rows for each in [*first, *following] for rows in again.read(each)]
    assert [int(value) for rows in read for value in rows["value"].to_pylist()] == [*range(10, 15)]
    again.stop()


def test_no_range_is_planned_between_two_topics_or_backwards(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "failOnDataLoss": "false"}
    options |= {"startingOffsets": "earliest"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    ids = topic_ids_in(reader.initialOffset())
    was, cut_to, later = (to_json({OfTopic(topic, 0): offset}, ids) for offset in (8, 6, 9))
    of_another = to_json({OfTopic(topic, 0): 8}, {topic: uuid4()})
    assert [each.value.count for each in reader.partitions(was, later)] == [1]
    assert reader.partitions(of_another, later) == [], "what its start says is of another one"
    assert reader.partitions(was, cut_to) == [], "under one id the log was cut, and the rest was read before"
    reader.stop()


def test_unread_records_of_a_deleted_topic_are_reported_lost() -> None:
    at = OfTopic("t", 0)
    marks = planning.OffsetBounds({at: 0}, {at: 5})
    assert planning.lost_ranges({at: 0}, {"t"}, marks, {}) == []
    (lost,) = planning.lost_ranges({at: 0}, {"t"}, marks, {at: 10})
    assert (lost.start, lost.end) == (0, 10)


def test_a_gate_knows_the_topic_that_was(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "failOnDataLoss": "false"}
    options |= {"startingOffsets": "earliest", "gate": topic, "groupId": f"{topic}-a", "pollTimeoutMs": "0"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    other = to_json({OfTopic(topic, 0): 10}, {topic: uuid4()})
    with pytest.raises(LeaseError, match=f"how far the output of {topic} goes, and other topics have these names now"):
        reader.latestOffset(other, ReadAllAvailable())
    reader.stop()


def test_a_gate_is_asked_before_a_first_batch_at_the_end_of_a_log(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "groupId": f"{topic}-a"}
    cluster = Cluster(ClientSettings.parse({"bootstrap.servers": odradek}))
    for gate in (f"{topic}-new", f"{topic}-behind"):
        if gate.endswith("behind"):
            create_lease(cluster, gate, f"{topic}-a", {OfTopic(topic, 0): 5})
        reader: Any = OdradekDataSource(options | {"gate": gate}).streamReader(source_schema(False))
        begin = reader.initialOffset()
        if gate.endswith("behind"):
            with pytest.raises(LeaseError, match="what lies between would be left out"):
                reader.latestOffset(begin, ReadAllAvailable())
        else:
            assert reader.latestOffset(begin, ReadAllAvailable()) == begin
            while (found := current_lease(cluster, gate)) is None:  # what was made is seen a moment later
                time.sleep(0.01)
            assert found.covered == {(topic, 0): 10}
        reader.stop()
    cluster.close()


def test_a_checkpoint_without_ids_of_topics(odradek: str, topic: str) -> None:
    """Spark's Kafka source, or a cluster without topic ids, writes such a checkpoint: it gets ids, and until then log
    end offsets are compared."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "pollTimeoutMs": "0"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    found = reader.latestOffset({topic: {"0": 10}}, ReadAllAvailable())
    assert found.pop(topic) == {"0": 10} and list(found.values()) == [{}]
    with pytest.raises(DataLossError, match=f"{topic}-0: .*the log now ends at 10: it was truncated, or the topic was"):
        reader.latestOffset({topic: {"0": 11}}, ReadAllAvailable())
    with pytest.raises(OptionError, match="which is not a position in topics"):
        reader.latestOffset({topic: {"0": 10}, f"{topic}@no-id": {}}, ReadAllAvailable())
    reader.stop()


def test_a_topic_that_is_recreated_before_its_tasks_run(odradek: str, topic: str) -> None:
    """A planned range is of the topic that was there then: nothing of the new one is read in its place."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    settings = ClientSettings.parse({"bootstrap.servers": odradek})
    cluster = Cluster(settings)
    cluster.partitions([topic])
    planned = OffsetRange(topic, 0, 2, 10, cluster.topic_ids[topic])
    schema = to_arrow_schema(source_schema(False), timezone="UTC")
    assert sum(rows.num_rows for rows in read_range(settings, planned, schema, fail_on_data_loss=True)) == 8
    recreate(odradek, topic)
    recreated = rf"{topic}-0: offsets 2 to 9 \(8 offsets\), the topic {topic} was deleted and recreated"
    with pytest.raises(DataLossError, match=recreated):
        list(read_range(settings, planned, schema, fail_on_data_loss=True))
    cluster.close()


def test_a_topic_that_is_recreated_with_more_partitions(odradek: str, topic: str) -> None:
    """No partition is read until all begin at their start, which includes one at offset 0 and a new one."""
    create_topic(odradek, topic, 2)
    partition_0 = {"partitioner": "consistent", "sticky_partitioning_linger_ms": 0}
    produce_all(odradek, topic, [(b"a", b"%d" % number) for number in range(10)], **partition_0)
    options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "failOnDataLoss": "false"}
    options |= {"startingOffsets": "earliest", "pollTimeoutMs": "0"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    ends = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert sorted(ends[topic].values()) == [0, 10]
    recreate(odradek, topic, 3, range(100, 300))
    back = reader.latestOffset(ends, ReadAllAvailable())
    assert from_json(back) == {(topic, number): 0 for number in range(3)} and reader.partitions(ends, back) == []
    assert read_planned(reader, back) == [*range(100, 300)]
    reader.stop()


def test_a_topic_that_was_away_while_others_were_read(
    odradek: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are planned as of the topic that is there, not as of the one that was."""
    monkeypatch.setattr(planning, "GONE_PATIENCE_S", 0.5)
    create_topic(odradek, topic)
    create_topic(odradek, f"{topic}-stays")
    options = {"kafka.bootstrap.servers": odradek, "subscribePattern": f"{topic}.*", "failOnDataLoss": "false"}
    options |= {"startingOffsets": "earliest", "pollTimeoutMs": "0"}
    reader: Any = OdradekDataSource(options).streamReader(source_schema(False))
    both = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    client = admin(odradek)
    client.delete_topics([topic], operation_timeout=30)[topic].result(timeout=PATIENCE_S)
    without = reader.latestOffset(both, ReadAllAvailable())
    assert without == reader.latestOffset(without, ReadAllAvailable())
    assert from_json(without) == {(f"{topic}-stays", 0): 0}
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    assert read_planned(reader, without) == [*range(10)]
    reader.stop()


def lengthen_patience(patch: pytest.MonkeyPatch) -> None:
    """Do not believe after a few seconds, in which a machine may stand still, that a topic is gone."""
    patch.setattr(planning, "GONE_PATIENCE_S", 120.0)
    patch.setattr(fetch, "GONE_PATIENCE_S", 120.0)


def test_a_broker_that_does_not_know_a_topic(
    odradek: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that one broker does not know counts as deleted only if no other broker knows it."""
    lengthen_patience(monkeypatch)
    with Node(tmp_path) as stale:
        create_topic(odradek, topic)
        numbered(odradek, topic, range(10))
        settings = ClientSettings.parse({"bootstrap.servers": f"{stale.bootstrap},{odradek}"})
        schema = to_arrow_schema(source_schema(False), timezone="UTC")
        found = read_range(settings, OffsetRange(topic, 0, 0, 10), schema, fail_on_data_loss=True)
        assert sum(rows.num_rows for rows in found) == 10
        cluster = Cluster(settings)
        options = parse_read_options({"kafka.bootstrap.servers": "in:1", "subscribe": topic}, streaming=True)
        known = [OfTopic(topic, 0)]
        assert planning.selected_partitions(cluster, options, must_exist=False, known=known) == known
        cluster.close()


def test_a_broker_that_knows_another_topic_of_the_name(
    odradek: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is cut off may know an older topic: it does not count while another one knows the right one."""
    lengthen_patience(monkeypatch)
    with Node(tmp_path) as stale:
        for bootstrap in (stale.bootstrap, odradek):
            create_topic(bootstrap, topic)
        right = Cluster(ClientSettings.parse({"bootstrap.servers": odradek}))
        right.partitions([topic])
        cluster = Cluster(ClientSettings.parse({"bootstrap.servers": f"{stale.bootstrap},{odradek}"}))
        options = parse_read_options({"kafka.bootstrap.servers": "in:1", "subscribe": topic}, streaming=True)
        ids = {topic: right.topic_ids[topic]}
        planning.selected_partitions(cluster, options, must_exist=False, topic_ids=ids)
        assert cluster.topic_ids == ids
        right.close()
        cluster.close()


def test_brokers_that_do_not_know_ids_of_topics(odradek: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """During an upgrade past Kafka 2.8 some brokers have no topic ids: that does not mean another topic."""
    create_topic(odradek, topic)
    numbered(odradek, topic, range(10))
    settings = ClientSettings.parse({"bootstrap.servers": odradek, "client.id": "of-ids"})
    cluster = Cluster(settings)
    cluster.partitions([topic])
    planned = OffsetRange(topic, 0, 0, 10, cluster.topic_ids[topic])
    cluster.close()
    monkeypatch.setitem(connection.NEWEST, ApiKey.METADATA, 9)
    begun = to_json({OfTopic(topic, 0): 0}, {topic: planned.topic_id})  # type: ignore[dict-item]  # there is an id: the topic exists
    read_options = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "kafka.client.id": "of-no-ids"}
    reader: Any = OdradekDataSource(read_options).streamReader(source_schema(False))
    assert topic_ids_in(reader.latestOffset(begun, ReadAllAvailable())) == topic_ids_in(begun), "it is not forgotten"
    reader.stop()
    schema = to_arrow_schema(source_schema(False), timezone="UTC")
    assert sum(rows.num_rows for rows in read_range(settings, planned, schema, fail_on_data_loss=True)) == 10


def test_a_topic_that_is_deleted_between_tasks_and_commit(odradek: str, topic: str, tmp_path: Path) -> None:
    """No record of the batch is written, not even to the remaining topic; once recreated, the topic gets the batch."""
    for name in (f"{topic}-a", f"{topic}-copy"):
        create_topic(odradek, name, 2)
    made: Any = stream_writer({"kafka.bootstrap.servers": odradek, "checkpointLocation": str(tmp_path)}, ROUTED, False)
    rows = pa.record_batch({"value": ["1", "2"], "topic": [f"{topic}-a", f"{topic}-copy"]})
    staged = made.stage(iter([rows]), f"query-{topic}", "run", 0)
    client = admin(odradek)
    client.delete_topics([f"{topic}-a"], operation_timeout=30)[f"{topic}-a"].result(timeout=PATIENCE_S)
    with pytest.raises(ClusterError, match=rf"no such topic: {topic}-a\. It existed when the tasks ran: create it"):
        made.commit([staged], 0)
    assert copied(odradek, topic) == []
    create_topic(odradek, f"{topic}-a", 2)
    made.commit([staged], 0)
    assert copied(odradek, topic) == [2]


def test_a_topic_that_is_recreated_with_fewer_partitions(odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, f"{topic}-copy", 3)
    schema = StructType([StructField("value", StringType()), StructField("partition", IntegerType())])
    options = {"kafka.bootstrap.servers": odradek, "topic": f"{topic}-copy", "checkpointLocation": str(tmp_path)}
    made: Any = stream_writer(options, schema, False)
    rows = pa.record_batch({"value": ["1", "2"], "partition": pa.array([0, 2], pa.int32())})
    staged = made.stage(iter([rows]), f"query-{topic}", "run", 0)
    client = admin(odradek)
    client.delete_topics([f"{topic}-copy"], operation_timeout=30)[f"{topic}-copy"].result(timeout=PATIENCE_S)
    create_topic(odradek, f"{topic}-copy", 2)
    with pytest.raises(ClusterError, match=r"partition 2 existed when the tasks ran .* recreated\. Nothing of this"):
        made.commit([staged], 0)
    assert copied(odradek, topic) == []


def test_a_full_staging_disk(odradek: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mebibyte for two: reported in one sentence, nothing left there and nothing written; with room it goes on."""
    create_topic(odradek, f"{topic}-copy", 2)
    monkeypatch.setattr(exact_sink, "streaming_task", lambda: Task(f"query-{topic}", "run", 0, 0, 0))
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


@pytest.mark.slow  # without Spark, test_transaction, test_marker_topic and test_task_writers show it
def test_another_driver_on_the_checkpoint(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """The newer query goes on; the older one ends with nothing of its batch written. Two JVMs: the slow tests."""
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
@pytest.mark.timeout(1200)
def test_a_broker_that_goes_away_for_a_minute(spark: Any, topic: str, tmp_path: Path) -> None:
    """Source and exactly-once sink wait for it and go on: every record once, in a query that did not end."""
    with Node(tmp_path / "node") as node:
        for name in (topic, f"{topic}-copy"):
            create_topic(node.bootstrap, name, 2)
        numbered(node.bootstrap, topic, range(3000))
        query = start_copy(spark, node.bootstrap, topic, tmp_path)
        eventually(lambda: read_all(node.bootstrap, f"{topic}-copy", 2), "the query copies nothing", pause_s=0.1)
        node.kill()
        time.sleep(60)
        node.start()
        assert query.awaitTermination(500), "the copy did not end"
        assert copied(node.bootstrap, topic) == list(range(3000))
