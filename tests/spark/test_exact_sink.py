"""The exactly-once topic sink under Spark: readers of committed records get each record once, after any crash."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek.errors import OptionError
from pyspark_odradek.last_words import reason
from pyspark_odradek.topic_sink import exact_sink
from pyspark_odradek.writers import stream_writer
from tests.spark import dying_source
from tests.spark.queries import ON_BOTH, load, load_stream, numbered
from tests.support.clients.confluent import await_ends, create_topic, read_all, read_committed

STEPS = ("begin", "marker", "produce", "mark", "end")
VALUE = StructType([StructField("value", StringType())])


def start_copy(spark: Any, bootstrap: str, topic: str, folder: Path, sink: str = "odradek", **options: Any) -> Any:
    """Start to copy the records of a topic to `<topic>-copy`, 100 offsets for each batch; returns the query."""
    stream = load_stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=100).select("key", "value")
    writer = stream.writeStream.format(sink).option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", f"{topic}-copy").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.options(**options).trigger(availableNow=True).start()


def copy(spark: Any, bootstrap: str, topic: str, folder: Path, sink: str = "odradek", **options: Any) -> Any:
    """Run `start_copy` to its end, and return the query."""
    query = start_copy(spark, bootstrap, topic, folder, sink, **options)
    assert query.awaitTermination(400), "the copy did not end"
    return query


def copied(bootstrap: str, topic: str, partitions: int = 2) -> list[int]:
    messages = read_committed(bootstrap, f"{topic}-copy", partitions)
    return sorted(int(message.value() or b"") for message in messages)


def remove_commit(folder: Path) -> None:
    """Remove Spark's commit of the last batch, as after a crash between the sink's commit and Spark's."""
    commits = folder / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


@ON_BOTH
def test_a_batch_that_runs_again_is_written_once(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}-copy", 2)
    numbered(bootstrap, topic, range(250))
    copy(spark, bootstrap, topic, tmp_path)
    remove_commit(tmp_path)
    numbered(bootstrap, topic, range(250, 300))
    copy(spark, bootstrap, topic, tmp_path)
    assert copied(bootstrap, topic) == list(range(300))


@pytest.mark.slow  # without Spark, test_transaction and test_table_sinks show it
def test_a_checkpoint_that_was_restored_to_the_batch_before(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    """Spark plans the last batch again with more records: it does not count as the committed one."""
    create_topic(odradek, topic)
    create_topic(odradek, f"{topic}-copy", 2)
    numbered(odradek, topic, range(50))
    copy(spark, odradek, topic, tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    numbered(odradek, topic, range(50, 60))
    copy(spark, odradek, topic, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "backup").rename(tmp_path / "checkpoint")
    numbered(odradek, topic, range(60, 70))
    with pytest.raises(Exception, match="a batch 1 of this query already, which was planned otherwise"):
        copy(spark, odradek, topic, tmp_path)
    assert copied(odradek, topic) == list(range(60))


def test_two_queries_of_one_application(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """Their batches overlap, so Spark runs those of one query in several processes, one after another."""
    topics = [f"{topic}-{number}" for number in range(2)]
    for name in topics:
        create_topic(odradek, name)
        create_topic(odradek, f"{name}-copy", 2)
        numbered(odradek, name, range(300))
    queries = [start_copy(spark, odradek, name, tmp_path / name) for name in topics]
    for query in queries:
        assert query.awaitTermination(400), "the copy did not end"
    assert [copied(odradek, name) for name in topics] == [list(range(300))] * 2


def die_and_restart(spark: Any, bootstrap: str, topic: str, folder: Path, steps: list[str], **options: str) -> None:
    """Copy with a process that is killed once in each step; checks that every record exists once."""
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}-copy", 2)
    numbered(bootstrap, topic, range(250))
    spark.dataSource.register(dying_source.DyingSource)
    plan = folder / "plan"
    plan.write_text("\n".join(steps))
    for death in range(len(steps)):
        with pytest.raises(Exception):  # noqa: B017 - of Spark, about a worker that is gone
            copy(spark, bootstrap, topic, folder, "odradek_dying", plan=str(plan), **options)
        assert len(plan.read_text().splitlines()) == len(steps) - death - 1, "it ended otherwise than planned"
        numbered(bootstrap, topic, range(250 + 50 * death, 300 + 50 * death))
    copy(spark, bootstrap, topic, folder, **options)
    assert copied(bootstrap, topic) == list(range(250 + 50 * len(steps)))


@pytest.mark.slow  # the next test is the short form
def test_the_committing_process_is_killed_after_its_commit(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    die_and_restart(spark, odradek, topic, tmp_path, ["after end"])


def test_the_process_that_ends_the_transactions_of_tasks_is_killed(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    """It is killed after the first transaction of a batch: the committer ends those of all writing tasks."""
    by_tasks = {"exactlyOnceWriters": "tasks", "markerTopic": f"{topic}-markers"}
    die_and_restart(spark, odradek, topic, tmp_path, ["after end_task"], **by_tasks)
    assert [path for path in (tmp_path / "checkpoint" / "odradek-staging").rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_process_that_decides_for_tasks_is_killed_in_every_step(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    steps = [f"{when} {step}" for step in (*STEPS, "end_tasks", "end_task") for when in ("before", "after")]
    by_tasks = {"exactlyOnceWriters": "tasks", "markerTopic": f"{topic}-markers"}
    die_and_restart(spark, bootstrap, topic, tmp_path, steps, **by_tasks)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_committing_process_is_killed_in_every_step(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    die_and_restart(spark, bootstrap, topic, tmp_path, [f"{w} {step}" for step in STEPS for w in ("before", "after")])


def test_large_batches_are_staged_and_swept(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    create_topic(odradek, f"{topic}-copy", 2)
    frame = spark.range(500).selectExpr("CAST(id AS STRING) key", "CONCAT(id, repeat(' ', 500)) value")
    frame.write.format("odradek").options(**{"kafka.bootstrap.servers": odradek, "topic": topic}).mode("append").save()
    staging = tmp_path / "staging"
    leftover = staging / "some-query"
    leftover.mkdir(parents=True)
    copy(spark, odradek, topic, tmp_path, stagingLocation=str(staging), **{"kafka.compression.type": "lz4"})
    assert copied(odradek, topic) == list(range(500))
    assert leftover.exists(), "other queries' files are not ours"
    assert [path for path in staging.rglob("*") if path.is_file()] == []


def test_attempts_that_are_not_committed_leave_nothing(
    odradek: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task runs twice, one dies while it stages, an older run left a file, one is late: committed attempts count."""
    monkeypatch.setattr(exact_sink, "CHUNK_BYTES", 1)  # rows are staged as they come
    create_topic(odradek, f"{topic}-copy", 2)
    options = {"kafka.bootstrap.servers": odradek, "topic": f"{topic}-copy", "stagingLocation": str(tmp_path)}
    made: Any = stream_writer(options, VALUE, False)
    rows = [pa.record_batch({"value": [f"{n}" + " " * 500 for n in range(at, at + 500)]}) for at in (0, 500)]
    made.stage(iter(rows[:1]), f"query-{topic}", "older-run", 7)
    twice = [made.stage(iter(rows[:1]), f"query-{topic}", "run", 8) for _ in range(2)]
    other = made.stage(iter(rows[1:]), f"query-{topic}", "run", 8)
    assert twice[0].file.path != twice[1].file.path, "each attempt has a file of its own"

    def ended() -> Iterator[Any]:
        yield rows[1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.stage(ended(), f"query-{topic}", "run", 8)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5, "a process that is ended leaves its file to the batch"
    made.commit([twice[1], other], 8)
    assert copied(odradek, topic) == list(range(1000))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    late = made.stage(iter(rows[1:]), f"query-{topic}", "run", 8)
    next_batch = [pa.record_batch({"value": [f"{n}" for n in range(1000, 1010)]})]
    made.commit([made.stage(iter(next_batch), f"query-{topic}", "run", 9)], 9)
    assert copied(odradek, topic) == list(range(1010))
    assert not Path(late.file.path).exists(), "the next batch removes what was staged behind its own"


def test_an_invalid_timestamp_of_a_record(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    frame = spark.sql("SELECT 'v' value, TIMESTAMP'1969-12-31 23:59:59' timestamp")
    for delivery in ("exactly_once", "at_least_once"):
        options = {"kafka.bootstrap.servers": odradek, "topic": topic, "delivery": delivery}
        options |= {"stagingLocation": str(tmp_path)} if delivery == "exactly_once" else {}
        with pytest.raises(Exception, match=r"a row has a timestamp before 1970 \(-1\.000 s\).*drop the column"):
            frame.write.format("odradek").options(**options).mode("append").save()
    assert read_all(odradek, topic) == []


def test_a_batch_write_is_atomic(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, 2)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly_once"}
    options["stagingLocation"] = f"file://{tmp_path}/staging"
    frame = spark.range(0, 2000, 1, 4).selectExpr("CAST(id AS STRING) key", "CONCAT(id, repeat(' ', 200)) value")
    failing = frame.selectExpr("key", "IF(key = '1999', raise_error('no such row'), value) value")
    with pytest.raises(Exception, match="no such row"):
        failing.write.format("odradek").options(**options).mode("append").save()
    assert read_all(bootstrap, topic, 2) == []
    # A task of the failed write may still run, and stage, when the write is aborted.
    options["stagingLocation"] = f"file://{tmp_path}/staging-again"
    frame.write.format("odradek").options(**options).mode("append").save()
    await_ends(bootstrap, topic, 2)
    found = load(spark, bootstrap, subscribe=topic).selectExpr("INT(TRIM(STRING(value))) n").orderBy("n").collect()
    assert [row.n for row in found] == list(range(2000))
    assert [path for path in (tmp_path / "staging-again").rglob("*") if path.is_file()] == []


def test_headers_tombstones_partitions_and_times(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, 3, retention_ms=-1)  # some records are of 1970
    frame = spark.createDataFrame(
        [
            (b"k", None, [("h", bytearray(b"1")), ("n", None)], 2, 1000.0),
            (None, b"", None, 0, 2000.0),
            (b"", b"v", [], 1, None),
        ],
        "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, seconds double",
    ).selectExpr("key", "value", "headers", "partition", "timestamp_seconds(seconds) timestamp")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly_once"}
    options["stagingLocation"] = str(tmp_path)
    frame.coalesce(1).write.format("odradek").options(**options).mode("append").save()
    messages = {m.partition(): m for m in read_committed(bootstrap, topic, 3)}
    found = {p: (m.key(), m.value(), m.headers()) for p, m in messages.items()}
    assert found == {
        2: (b"k", None, [("h", b"1"), ("n", None)]),
        0: (None, b"", None),
        1: (b"", b"v", None),
    }
    assert (messages[2].timestamp()[1], messages[0].timestamp()[1]) == (1_000_000, 2_000_000)
    assert messages[1].timestamp()[1] > 1_600_000_000_000


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_topic_is_created_as_the_options_say(
    spark: Any, bootstrap: str, topic: str, delivery: str, tmp_path: Path
) -> None:
    from confluent_kafka.admin import ConfigResource, ResourceType

    from tests.support.clients.confluent import admin

    frame = spark.createDataFrame(
        [(b"k", b"v", topic + "-a"), (b"k", b"v", topic + "-b")], "key binary, value binary, topic string"
    )
    options = {"kafka.bootstrap.servers": bootstrap, "delivery": delivery}
    if delivery == "exactly_once":  # librdkafka has its own patience and words for it
        options["stagingLocation"] = str(tmp_path)
        says = f"no such topic: {topic}-a\\. Create it, or let the sink do so with the option createTopic=true"
        with pytest.raises(Exception, match=says):
            frame.coalesce(1).write.format("odradek").options(**options).mode("append").save()
    wished = {"createTopic": "true", "topicPartitions": "5", "topic.cleanup.policy": "compact"}
    frame.coalesce(1).write.format("odradek").options(**options, **wished).mode("append").save()
    client = admin(bootstrap)
    for name in (f"{topic}-a", f"{topic}-b"):
        assert len(client.list_topics(name, timeout=60).topics[name].partitions) == 5
        (future,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        assert future.result(60)["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs the option stagingLocation"),
        ({"delivery": "twice"}, "delivery is exactly_once or at_least_once"),
        ({"asyncProgressTrackingEnabled": "true"}, "asyncProgressTrackingEnabled contradicts"),
        ({"kafka.acks": "1"}, "acks must be all"),
        ({"kafka.enable.idempotence": "false"}, "idempotence must be true"),
        ({"kafka.transactional.id": "mine"}, "set transactionalIdPrefix"),
        ({"kafka.compression.type": "rar"}, "compression.type is one of none, gzip"),
        ({"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "99"}, "is not between"),
        ({"kafka.batch.size": "many"}, "is not a whole number"),
        ({"topicPartitions": "3"}, "topicPartitions has an effect only with createTopic=true"),
        ({"topic.cleanup.policy": "compact"}, r"topic\.\* has an effect only with createTopic=true"),
        ({"exactlyOnceWriters": "all"}, "exactlyOnceWriters is driver or tasks, not 'all'"),
        ({"exactlyOnceWriters": "tasks"}, "exactlyOnceWriters=tasks needs the option markerTopic"),
        ({"exactlyOnceWriters": "tasks", "gate": "g", "groupId": "g"}, "with a gate the driver writes"),
        ({"exactlyOnceWriters": "tasks", "delivery": "at_least_once"}, "needs a streaming query and delivery=exactly"),
        ({"stagingLocation": "nowhere://x"}, "stagingLocation=nowhere://x"),
        ({"stagingLocaton": "/tmp"}, "did you mean 'stagingLocation'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], says: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"} | options
    if options:
        given.setdefault("stagingLocation", "/tmp/any")
    with pytest.raises(OptionError, match=says):
        stream_writer(given, VALUE, False)


def test_staging_that_fails_is_reported_and_nothing_is_written(
    spark: Any, odradek: str, topic: str, tmp_path: Path
) -> None:
    create_topic(odradek, f"{topic}-copy", 2)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    frame = spark.range(3000).selectExpr("CAST(id AS STRING) key", "CONCAT(id, repeat(' ', 500)) value")
    options = {"kafka.bootstrap.servers": odradek, "topic": f"{topic}-copy", "delivery": "exactly_once"}
    with pytest.raises(Exception, match=r"a task cannot stage its records in .*Make room there"):
        frame.write.format("odradek").options(**options, stagingLocation=str(blocked)).mode("append").save()
    with pytest.raises(Exception, match="the exactly-once sink needs the option stagingLocation") as few_rows:
        frame.limit(1).write.format("odradek").options(**options).mode("append").save()
    assert "at_least_once needs neither" in (reason(few_rows.value) or "")
    assert copied(odradek, topic) == []
