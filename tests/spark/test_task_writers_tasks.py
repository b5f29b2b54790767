"""Tasks that write to the brokers: failed and late attempts, and the writer's decision about each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek.client.cluster import RetriableError
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, FencedError, OptionError, StagingError
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.topic_sink import exact_sink
from pyspark_odradek.topic_sink.task_writers import writing
from pyspark_odradek.topic_sink.task_writers.decided import DecidedCommit
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared
from pyspark_odradek.topic_sink.task_writers.sink import REPORTED_PARTITIONS, Handed
from pyspark_odradek.topic_sink.task_writers.writing import (
    SLOTS,
    KnownBatchError,
    TaskTransaction,
    transactional_id,
)
from pyspark_odradek.topic_sink.transaction import Session, Work
from pyspark_odradek.writers import stream_writer
from tests.spark.task_writers_query import BOTH, PARTITIONS, Query, dies, on_each_cluster, on_ours
from tests.support.clients.confluent import create_topic, read_committed

VALUE = StructType([StructField("value", StringType())])
KEY_AND_VALUE = StructType([StructField("key", StringType()), *VALUE])
TOPIC_AND_VALUE = StructType([StructField("topic", StringType()), *VALUE])


query, ours = pytest.fixture(on_each_cluster), pytest.fixture(on_ours)


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_attempts_that_lost_are_fenced_before_the_decision(query: Query) -> None:
    """One is ready, of another run, and one still writes: readers would wait until its time is over."""
    lost = query.task(0, "before", 0)
    writing, task, staged, prepared = query.writing(0, "run", 1)
    tasks = [query.task(0, "run", 0, attempt=1), query.task(0, "run", 1, attempt=2)]
    produce, driver = writing.produce, query.driver()

    def overtaken(session: Session, work: Work, deadline: float) -> None:
        produce(session, work, deadline)
        writing.produce = produce  # type: ignore[method-assign]  # the test replaces it
        assert driver.commit(query.batch(0, "run", tasks))
        query.check(1)

    writing.produce = overtaken  # type: ignore[method-assign]  # the test replaces it
    with pytest.raises(KnownBatchError, match="the sink has batch 0"):
        writing.prepare(task, staged, prepared)
    assert not driver.end_task(lost, time.monotonic() + 10), "it cannot be committed any more"
    query.run(1, "run", driver)
    query.check(2)


def test_a_transaction_that_cannot_be_fenced_is_left_to_its_timeout(
    ours: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ours.task(0, "before", 0)
    driver = ours.driver()

    def unknown() -> list[tuple[str, int]]:
        raise ClusterError("localhost:1 does not offer LIST_TRANSACTIONS")

    monkeypatch.setattr(driver.cluster, "ongoing_transactions", unknown)
    assert ours.run(0, "run", driver)
    ours.terminate([lost])
    ours.check(1)


def test_an_attempt_that_begins_too_late_writes_nothing(query: Query) -> None:
    """It is of the batch before, with the same transactional id: the next batch is committed, even without files."""
    late = query.writing(0, "run", 0)
    driver = query.driver()
    query.run(0, "run", driver)
    tasks = query.tasks(1, "run")
    assert late[0].transactional_id == tasks[0].transactional_id
    with pytest.raises(KnownBatchError, match="the sink has batch 0"):
        late[0].prepare(*late[1:])
    for task in tasks:
        Path(task.path).unlink()
    assert driver.commit(query.batch(1, "run", tasks))
    query.check(2)


def test_an_id_that_another_attempt_took_over_costs_a_repair(ours: Query) -> None:
    """One of SLOTS attempts of a repeated stage has the same id: it still writes while the batch is decided."""
    tasks = ours.tasks(0, "run")
    writing, task, staged, prepared = ours.writing(0, "run", 0, attempt=SLOTS)
    writing.transactional_id = tasks[0].transactional_id
    writing.prepare(task, staged, prepared)
    ours.driver().commit(ours.batch(0, "run", tasks))
    ours.check(1)


def test_an_attempt_that_took_an_id_over_and_still_writes_is_fenced(ours: Query) -> None:
    """It has rows in its transaction, and no evidence yet: readers would wait until its time is over."""
    tasks = ours.tasks(0, "run")
    writing, task, staged, prepared = ours.writing(0, "run", 0, attempt=SLOTS)
    writing.transactional_id = tasks[0].transactional_id
    produce = writing.produce

    def overtaken(session: Session, work: Work, deadline: float) -> None:
        produce(session, work, deadline)
        writing.produce = produce  # type: ignore[method-assign]  # the test replaces it
        assert ours.driver().commit(ours.batch(0, "run", tasks))
        ours.check(1)

    writing.produce = overtaken  # type: ignore[method-assign]  # the test replaces it
    with pytest.raises(KnownBatchError, match="the sink has batch 0"):
        writing.prepare(task, staged, prepared)


def test_one_that_is_not_fenced_at_once_is_asked_for_again(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [ours.task(0, "before", 0, attempt=attempt) for attempt in range(2)]
    driver, fence = ours.driver(), DecidedCommit._fence
    asked: list[str] = []

    def moved(self: DecidedCommit, transactional_id: str) -> None:
        asked.append(transactional_id)
        if len(asked) == 1:
            raise RetriableError("NOT_COORDINATOR")
        fence(self, transactional_id)

    monkeypatch.setattr(DecidedCommit, "_fence", moved)
    assert ours.run(0, "run", driver)
    assert sorted(asked) == sorted([*(each.transactional_id for each in lost), asked[0]])
    ours.check(1)


def test_ids_of_attempts_are_apart_and_bounded() -> None:
    """A stage that is run again has the attempts 0 again; Spark counts all attempts of the application."""
    of_stage, of_its_retry = (
        {transactional_id("p.", Task("q", "run", 0, number, 40 + number + again), 0) for number in range(3)}
        for again in (0, 3)
    )
    assert len(of_stage | of_its_retry) == 6
    of_many_runs = {transactional_id("p.", Task("q", f"run {n}", n, 7, 13 * n), 0) for n in range(1000)}
    assert len(of_many_runs) <= SLOTS


def test_an_attempt_that_is_overtaken_while_it_writes_gives_up(ours: Query) -> None:
    written = ours.writing(0, "run", 0)
    of_another: list[Prepared] = []

    class Overtaken(TaskTransaction):
        def produce(self, session: Session, work: Work, deadline: float) -> None:
            if not of_another:
                of_another.append(ours.task(0, "run", 0))
            super().produce(session, work, deadline)

    with pytest.raises(FencedError, match="another attempt of this task has taken over"):
        ours.transaction(Overtaken, written[0].transactional_id).prepare(*written[1:])
    assert ours.driver().commit(ours.batch(0, "run", [*of_another, ours.task(0, "run", 1)]))
    ours.check(1)


def sink(query: Query, schema: StructType = VALUE, **options: str) -> Any:
    """The writer, as Spark gets it."""
    given = {"kafka.bootstrap.servers": query.bootstrap, "markerTopic": query.markers or ""}
    given |= {"exactlyOnceWriters": "tasks", "stagingLocation": str(query.folder)}
    given |= {"kafka.transaction.timeout.ms": str(query.timeout_ms)}
    given |= {} if "topic" in schema.names else {"topic": query.topic}
    return stream_writer(given | options, schema, False)


def rows(*values: str) -> Any:
    return pa.record_batch({"value": list(values)})


def test_a_task_that_fails_leaves_neither_file_nor_open_transaction(ours: Query) -> None:
    def failing() -> Iterator[Any]:
        yield rows("1" * 1000)
        raise OSError("no more rows")

    made = sink(ours, VALUE, topic=f"{ours.topic}-small", **{"kafka.batch.size": "50"})
    create_topic(ours.bootstrap, f"{ours.topic}-small", PARTITIONS, max_message_bytes=200)
    refused = {"no more rows": failing(), "MESSAGE_TOO_LARGE": iter([rows("1", "2"), rows("1" * 1000)])}
    for says, given in refused.items():
        with pytest.raises((OSError, ClusterError), match=says):
            made.prepare(given, Task(ours.id, "run", 0, 0, 7), 0)
    create_topic(ours.bootstrap, ours.markers or "", PARTITIONS)
    among_markers = pa.record_batch({"topic": [ours.markers], "value": ["1"]})
    with pytest.raises(OptionError, match="give the markers a topic of their own"):
        sink(ours, TOPIC_AND_VALUE).prepare(iter([among_markers]), Task(ours.id, "run", 0, 0, 7), 0)
    assert read_committed(ours.bootstrap, f"{ours.topic}-small", PARTITIONS) == []
    assert [path for path in ours.folder.rglob("*") if path.is_file()] == []


def test_the_writer_commits_what_its_tasks_handed_over(ours: Query) -> None:
    made = sink(ours)
    tasks = [Task(ours.id, "run", 0, number, number) for number in range(3)]
    handed = [
        made.prepare(iter([rows(str(task.partition_id))] if task.partition_id else []), task, 0) for task in tasks
    ]
    made.commit(handed, 0)
    made.abort(handed, 0)  # as after a commit whose answer was lost
    found = read_committed(ours.bootstrap, ours.topic, PARTITIONS)
    assert sorted(message.value() or b"" for message in found) == [b"1", b"2"]
    assert [path for path in ours.folder.rglob("*") if path.is_file()] == []
    of_next = [task._replace(batch_id=1) for task in tasks]
    made.commit([made.prepare(iter([]), task, 0) for task in of_next], 1)
    failed = [made.prepare(iter([rows("never")]), task._replace(batch_id=2), 0) for task in tasks]
    made.abort([*failed, None], 2)
    assert len(read_committed(ours.bootstrap, ours.topic, PARTITIONS)) == 2


def test_tasks_of_a_batch_that_is_decided_write_nothing(ours: Query) -> None:
    dies(ours, 0, "first", "end", after=True)
    made = sink(ours)
    tasks = [Task(ours.id, "second", 0, number, number) for number in range(2)]
    handed = [made.prepare(iter([rows("never")]), task, 0) for task in tasks]
    assert handed == [Handed(task, is_known=True) for task in tasks]
    assert len([path for path in ours.folder.rglob("*") if path.is_file()]) == 2, "those of the first run"
    with pytest.raises(FencedError, match="was put back to an older state"):
        made.commit([Handed(tasks[0]._replace(batch_id=-1), is_known=True)], -1)
    made.commit(handed, 0)
    ours.check(1)
    with pytest.raises(ClusterError, match="has found batch 1 in the sink, and its marker is not there any more"):
        made.commit([Handed(task._replace(batch_id=1), is_known=True) for task in tasks], 1)


def test_the_partitions_that_a_task_reports_are_bounded(ours: Query) -> None:
    topic = f"{ours.topic}-wide"
    create_topic(ours.bootstrap, topic, 40)
    made = sink(ours, KEY_AND_VALUE, topic=topic)
    keys = [str(number) for number in range(400)]
    handed = made.prepare(iter([pa.record_batch({"key": keys, "value": keys})]), Task(ours.id, "run", 0, 0, 0), 0)
    assert len(handed.partitions) == REPORTED_PARTITIONS
    made.commit([handed], 0)
    assert len(read_committed(ours.bootstrap, topic, 40)) == 400


def test_rows_that_are_read_from_their_file_are_checked(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that has more than it keeps in memory: it fails, and is run again."""
    monkeypatch.setattr(writing, "HELD_BYTES", 0)
    attempt, task, staged, prepared = ours.writing(0, "run", 0)
    path = Path(prepared.path)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(StagingError, match=r"at byte \d+ its bytes are not those that the task wrote"):
        attempt.prepare(task, staged, prepared)
    assert ours.driver().commit(ours.batch(0, "run", [ours.task(0, "run", 0, attempt=1), ours.task(0, "run", 1)]))
    ours.check(1)


def test_a_process_that_is_ended_leaves_its_file_to_the_batch(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sink, "CHUNK_BYTES", 1)  # each row is staged as it comes

    def ended() -> Iterator[Any]:
        yield rows("1" * 1000)
        raise KeyboardInterrupt

    made, task = sink(ours, VALUE, **{"kafka.batch.size": "50"}), Task(ours.id, "run", 0, 0, 0)
    with pytest.raises(KeyboardInterrupt):
        made.prepare(ended(), task, 0)
    assert len([path for path in ours.folder.rglob("*") if path.is_file()]) == 1
    made.commit([made.prepare(iter([rows("1")]), task._replace(attempt=1), 1)], 0)
    assert [path for path in ours.folder.rglob("*") if path.is_file()] == []


def test_one_warning_says_that_tasks_have_no_order_among_them(ours: Query, caplog: pytest.LogCaptureFixture) -> None:
    made = sink(ours, KEY_AND_VALUE)
    tasks = [Task(ours.id, "run", 0, number, number) for number in range(2)]
    apart = [Handed(task, [TopicPartition(ours.topic, task.partition_id)]) for task in tasks]
    shared = [Handed(task, [TopicPartition(ours.topic, 1)]) for task in tasks]
    for handed in (apart, shared, shared):
        made._warn_of_order(handed, "run")
    assert [record.getMessage() for record in caplog.records if "several tasks write to" in record.getMessage()] == [
        f"several tasks write to {ours.topic}-1: rows with one key keep their order where one task has all of them, as "
        "with one partition of the source or behind repartition(…, 'key'); see docs/spark-sink.md"
    ]
