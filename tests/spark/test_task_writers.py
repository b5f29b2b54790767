"""Tasks that write to the brokers, and a driver that decides, without Spark: stopped, fenced and repeated at each step.

A run is a driver with a name of its own; a step that raises stands for a driver that dies there. What an attempt or a
run leaves open would be aborted by its time-out, and is here by an operator, who is faster: the brokers do the same.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from pyspark_odradek import transaction
from pyspark_odradek.cluster import TRANSACTION, RetriableError, check
from pyspark_odradek.encode import BatchFormat, RowEncoder
from pyspark_odradek.errors import ClusterError, FencedError, OptionError, StagingError
from pyspark_odradek.exact_sink import sweep
from pyspark_odradek.marker_topic import Marker, MarkerTopic
from pyspark_odradek.offsets import TopicPartition
from pyspark_odradek.sink import stream_writer
from pyspark_odradek.staging import Staging
from pyspark_odradek.task import Task
from pyspark_odradek.task_writers import decided
from pyspark_odradek.task_writers.decided import DecidedCommit
from pyspark_odradek.task_writers.prepared import Prepared
from pyspark_odradek.task_writers.sink import Handed
from pyspark_odradek.task_writers.writing import (
    SLOTS,
    KnownBatchError,
    StagedRows,
    TaskTransaction,
    transactional_id,
)
from pyspark_odradek.transaction import Session, Work
from tests.spark.test_transaction import DiesError, _clusters, cluster, forget_sessions
from tests.support.clients.confluent import create_topic, read_committed
from tests.support.nodes.node import Node

VALUE = StructType([StructField("value", StringType())])
KEY_AND_VALUE = StructType([StructField("key", StringType()), *VALUE])
TOPIC_AND_VALUE = StructType([StructField("topic", StringType()), *VALUE])
PARTITIONS = 2
SIZE = 20  # rows of a batch, of ten keys, five for each of its two tasks
SLOW = pytest.mark.slow
BOTH = ["odradek", pytest.param("kafka", marks=SLOW)]
DECIDING = ("produce", "mark", "end")
SHORT = [("begin", True), ("mark", True), ("end", False), ("end", True), ("end_task", True), ("end_tasks", True)]
# A driver's: up to the end of the marker's transaction, which decides, and behind it.
STEPS = [
    pytest.param(step, after, marks=[] if (step, after) in SHORT else SLOW)
    for step in ("begin", "marker", "produce", "mark", "end", "end_tasks", "end_task")
    for after in (False, True)
]
_ids = itertools.count()


class Driver(DecidedCommit):
    """One that dies before or after one of its steps, or does something else first, once."""

    step, after = "", False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("step", "after", "instead") or name != self.step:
            return found

        def planned(*args: Any, **named: Any) -> Any:
            if named.get("committed") is False:  # a commit that starts again takes back what it had begun
                return found(*args, **named)
            self.step = ""
            answer = found(*args, **named) if self.after else None
            self.instead()
            return answer if self.after else found(*args, **named)

        return planned

    def instead(self) -> None:
        raise DiesError


class Query:
    """One query on a topic of two partitions, with its markers and its staged files."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap, self.topic, self.folder = bootstrap, topic, folder
        self.markers: str | None = f"{topic}-markers"
        self.id = f"tasks-{topic}-{next(_ids)}"
        self.timeout_ms = 600_000  # longer than any test waits
        create_topic(bootstrap, topic, PARTITIONS)
        self.at = cluster(bootstrap)

    def task(self, batch_id: int, run: str, number: int, attempt: int = 0) -> Prepared:
        """One of the two tasks of a batch: it has five of the ten keys, and leaves its transaction open."""
        written = self.writing(batch_id, run, number, attempt)
        return written[0].prepare(*written[1:])

    def writing(
        self, batch_id: int, run: str, number: int, attempt: int = 0
    ) -> tuple[TaskTransaction, Task, StagedRows, Prepared]:
        """The same, before it begins to write."""
        numbers = [n for n in range(batch_id * SIZE, (batch_id + 1) * SIZE) if n % 10 // 5 == number]
        keys, values = ([b"%d" % n for n in each] for each in ([n % 10 for n in numbers], numbers))
        rows = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        encoder = RowEncoder(self.topic, lambda _: PARTITIONS, BatchFormat(batch_bytes=100))
        task = Task(self.id, run, batch_id, number, attempt)
        staged = StagedRows(Staging(str(self.folder)), f"{run}/{batch_id}", f"{number}-{attempt}")
        staged.add(encoder.encode(rows, time.time_ns() // 1_000_000))
        id_ = transactional_id("odradek-sink.", task, attempt)
        prepared = staged.finish(id_)
        assert prepared is not None
        return self.transaction(TaskTransaction, id_), task, staged, prepared

    def transaction(self, kind: type[TaskTransaction], id_: str) -> TaskTransaction:
        return kind(self.at, id_, f"odradek-sink.{self.id}", transaction_timeout_ms=self.timeout_ms)

    def tasks(self, batch_id: int, run: str) -> list[Prepared]:
        return [self.task(batch_id, run, number) for number in range(2)]

    def driver(self, step: str = "", *, after: bool = False) -> Driver:
        """A new one, which knows only what the cluster knows."""
        forget_sessions()
        at = cluster(self.bootstrap)
        markers = None if self.markers is None else MarkerTopic(at, self.markers)
        made = Driver(at, f"odradek-sink.{self.id}", marker_topic=markers, transaction_timeout_ms=self.timeout_ms)
        made.step, made.after = step, after
        return made

    def batch(self, batch_id: int, run: str, tasks: Sequence[Prepared]) -> Work:
        partitions = frozenset(TopicPartition(self.topic, number) for number in range(PARTITIONS))
        return Work(batch_id, run, partitions, list, "", tuple(tasks))

    def run(self, batch_id: int, run: str, driver: DecidedCommit | None = None) -> bool:
        """A whole batch; False where it had been decided before."""
        tasks: list[Prepared] = []
        is_known = False
        try:
            tasks += self.tasks(batch_id, run)
        except KnownBatchError:
            is_known = True
        driver = driver or self.driver()
        written = driver.commit(self.batch(batch_id, run, tasks)._replace(is_known=is_known))
        if not written:
            driver.abandon(tasks, batch_id)
        return written

    def terminate(self, tasks: Sequence[Prepared]) -> None:
        """As brokers do when the time of a transaction is over."""
        for task in tasks:
            self.at.retrying("the end of a transaction", partial(self._terminate, task))

    def _terminate(self, task: Prepared) -> None:
        request = InitProducerIdRequest(transactional_id=task.transactional_id, transaction_timeout_ms=60_000)
        connection = self.at.coordinator(task.transactional_id, TRANSACTION)
        answer = connection.request(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer.error_code == 51:
            raise RetriableError("CONCURRENT_TRANSACTIONS")
        check(answer.error_code, "InitProducerId")

    def check(self, batches: int) -> None:
        """Each row is there once, and those of a key are in their order."""
        found: dict[bytes, list[int]] = {}
        for message in read_committed(self.bootstrap, self.topic, PARTITIONS):
            found.setdefault(message.key() or b"", []).append(int(message.value() or b""))
        assert found == {b"%d" % key: list(range(key, batches * SIZE, 10)) for key in range(10)}


@pytest.fixture
def query(bootstrap: str, topic: str, tmp_path: Path) -> Iterator[Query]:
    """On one cluster after the other."""
    yield Query(bootstrap, topic, tmp_path)
    close_all()


@pytest.fixture
def ours(odradek: str, topic: str, tmp_path: Path) -> Iterator[Query]:
    """On our cluster."""
    yield Query(odradek, topic, tmp_path)
    close_all()


def close_all() -> None:
    forget_sessions()
    while _clusters:
        _clusters.pop().close()


def dies(query: Query, batch_id: int, run: str, step: str, *, after: bool) -> list[Prepared]:
    """A run dies in a step of its commit; returns what its tasks had prepared."""
    tasks = query.tasks(batch_id, run)
    with pytest.raises(DiesError):
        query.driver(step, after=after).commit(query.batch(batch_id, run, tasks))
    return tasks


def test_batches_one_after_another(query: Query) -> None:
    driver = query.driver()
    assert [query.run(batch_id, "run", driver) for batch_id in range(3)] == [True] * 3
    query.check(3)


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
@pytest.mark.parametrize(("step", "after"), STEPS)
def test_a_driver_that_dies_at_a_step_is_made_up_for(query: Query, step: str, after: bool) -> None:
    query.run(0, "first")
    dies(query, 1, "second", step, after=after)
    is_decided = step in ("end_tasks", "end_task") or (step == "end" and after)
    assert query.run(1, "third") is not is_decided
    query.run(2, "third")
    query.check(3)


def test_what_brokers_have_ended_before_the_decision_is_repaired(query: Query) -> None:
    tasks = query.tasks(0, "run")
    query.terminate(tasks[:1])
    assert query.driver().commit(query.batch(0, "run", tasks))
    query.run(1, "run")
    query.check(2)


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
@pytest.mark.parametrize(
    ("step", "after"),
    [("repair", False), ("repair", True), ("produce", True), ("commit_offsets", True), ("end", False), ("end", True)],
)
def test_what_brokers_have_ended_between_the_ends_is_repaired_once(query: Query, step: str, after: bool) -> None:
    """One had ended, and its id was used again; of the other the rows are written by a run that dies, and the next."""
    tasks = dies(query, 0, "first", "end_task", after=True)
    query.terminate(tasks)
    repairing = query.driver(step, after=after)
    with pytest.raises(DiesError):
        repairing.commit(query.batch(0, "second", []))
    assert query.run(0, "third") is False
    query.run(1, "third")
    query.check(2)


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_attempts_that_lost_are_fenced_before_the_decision(query: Query) -> None:
    """One is ready, of another run, and one still writes: readers would wait until its time is over."""
    lost = query.task(0, "before", 0)
    writing, task, staged, prepared = query.writing(0, "run", 1)
    tasks = [query.task(0, "run", 0, attempt=1), query.task(0, "run", 1, attempt=2)]
    produce, driver = writing.produce, query.driver()

    def overtaken(session: Session, work: Work, deadline: float) -> None:
        produce(session, work, deadline)
        writing.produce = produce  # type: ignore[method-assign]
        assert driver.commit(query.batch(0, "run", tasks))
        query.check(1)

    writing.produce = overtaken  # type: ignore[method-assign]
    with pytest.raises(KnownBatchError, match="the sink has batch 0"):
        writing.prepare(task, staged, prepared)
    assert not driver.end_task(lost, time.monotonic() + 10), "it cannot be committed any more"
    query.run(1, "run", driver)
    query.check(2)


def test_what_cannot_be_fenced_is_left_to_its_time_out(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ours.task(0, "before", 0)
    driver = ours.driver()

    def unknown() -> list[tuple[str, int]]:
        raise ClusterError("localhost:1 does not offer LIST_TRANSACTIONS")

    monkeypatch.setattr(driver.cluster, "ongoing_transactions", unknown)
    assert ours.run(0, "run", driver)
    ours.terminate([lost])
    ours.check(1)


def test_an_attempt_that_begins_too_late_writes_nothing(query: Query) -> None:
    """Of the batch before, with the same id: what the next batch has prepared stays, though no file is there."""
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
    """Of a stage that runs again, one of SLOTS has the same id: it still writes as the batch is decided."""
    tasks = ours.tasks(0, "run")
    writing, task, staged, prepared = ours.writing(0, "run", 0, attempt=SLOTS)
    writing.transactional_id = tasks[0].transactional_id
    writing.prepare(task, staged, prepared)
    ours.driver().commit(ours.batch(0, "run", tasks))
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


def test_ends_are_asked_for_at_the_same_time(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided, "EACH", 1)
    at_once = threading.Barrier(2)
    end_task = DecidedCommit.end_task
    fails = iter([True])

    def together(self: DecidedCommit, task: Prepared, deadline: float, *, committed: bool = True) -> bool:
        at_once.wait(30)
        if next(fails, False):
            raise ConnectionError("one of the brokers is gone")
        return end_task(self, task, deadline, committed=committed)

    monkeypatch.setattr(DecidedCommit, "end_task", together)
    driver = ours.driver()
    driver.commit(ours.batch(0, "run", ours.tasks(0, "run")))
    driver.abandon(ours.tasks(1, "run"), 1)
    assert ours.run(1, "run", driver)
    ours.check(2)


@pytest.mark.slow
def test_a_transaction_that_times_out_is_written_again(query: Query) -> None:
    query.timeout_ms = 300
    tasks = query.tasks(0, "run")
    assert read_committed(query.bootstrap, query.topic, PARTITIONS) == [], "it waits until nothing is open"
    query.timeout_ms = 600_000
    assert query.driver().commit(query.batch(0, "run", tasks))
    query.check(1)


@pytest.mark.slow
def test_a_repair_that_times_out_is_begun_again(ours: Query) -> None:
    """Of a batch that another run has decided: this one is late, and not fenced."""
    ours.terminate(dies(ours, 0, "first", "end", after=True))
    driver = ours.driver("commit_offsets")
    driver.transaction_timeout_ms = 300

    def await_time_out() -> None:
        read_committed(ours.bootstrap, ours.topic, PARTITIONS)

    driver.instead = await_time_out  # type: ignore[method-assign]
    assert driver.commit(ours.batch(0, "second", [])) is False
    ours.check(1)


def test_of_two_drivers_the_later_one_decides(query: Query) -> None:
    older = query.driver()
    query.run(0, "older", older)
    of_older = dict(transaction._SESSIONS)
    tasks = query.tasks(1, "older")
    younger = query.driver()
    query.run(1, "younger", younger)
    of_younger = dict(transaction._SESSIONS)
    transaction._SESSIONS.update(of_older)
    with pytest.raises(FencedError, match="two drivers run on one checkpoint"):
        older.commit(query.batch(1, "older", tasks))
    older.abandon(tasks, 1)
    transaction._SESSIONS.update(of_younger)
    query.run(2, "younger", younger)
    query.check(3)


@pytest.mark.parametrize("step", ["end_tasks", "end_task", "repair"])
def test_two_drivers_end_what_one_has_decided(query: Query, step: str) -> None:
    """The older one pauses behind its decision; brokers abort all; the younger one repairs, and goes on."""
    tasks = query.tasks(0, "older")
    older = query.driver(step)

    def overtaken() -> None:
        of_older = dict(transaction._SESSIONS)
        query.terminate(tasks)
        younger = query.driver()
        assert query.run(0, "younger", younger) is False
        query.run(1, "younger", younger)
        transaction._SESSIONS.update(of_older)

    older.instead = overtaken  # type: ignore[method-assign]
    if step == "repair":
        query.terminate(tasks)
        with pytest.raises(FencedError, match="another run of this query has taken over"):
            older.commit(query.batch(0, "older", tasks))
    else:
        assert older.commit(query.batch(0, "older", tasks))
    query.check(2)


def test_a_checkpoint_that_was_put_back_loses_no_decided_batch(ours: Query) -> None:
    """No run may go on with it, so this one ends what the decided batch has left open."""
    ours.run(0, "first")
    dies(ours, 1, "first", "end", after=True)
    with pytest.raises(FencedError, match="put back to an older state"):
        ours.driver().commit(ours.batch(0, "second", [])._replace(tasks=None))
    ours.check(2)


def test_a_run_that_was_overtaken_leaves_the_newer_ones_files(tmp_path: Path) -> None:
    """Those of a decided batch are needed where brokers have aborted it."""
    staging = Staging(str(tmp_path))
    for folder in ("q/older/3", "q/newer/3", "q/newer/4"):
        file = staging.create(folder, "0-0")
        file.write([b"rows"])
        file.close(durable=True)
    sweep(staging, "q", "older", 3)
    assert (staging.folders("q"), staging.folders("q/newer")) == (["newer", "older"], ["4"])
    sweep(staging, "q", "newest", 4)
    assert staging.folders("q/newer") == []
    assert "newer" not in staging.folders("q")


def test_a_query_may_be_started_without_task_writers_again(ours: Query) -> None:
    """The driver writes again: it ends what was decided, and needs the marker topic for that."""
    dies(ours, 0, "first", "end", after=True)
    markers, ours.markers = ours.markers, None
    of_driver = ours.batch(0, "second", [])._replace(tasks=None)
    with pytest.raises(ClusterError, match="start the query with the option markerTopic that it had"):
        ours.driver().commit(of_driver)
    with pytest.raises(ClusterError, match="start the query with the option markerTopic that it had"):
        ours.driver().skip_empty(of_driver)
    ours.markers = markers
    assert ours.driver().commit(of_driver) is False
    ours.check(1)


def test_a_decided_batch_is_ended_by_one_that_has_no_rows(ours: Query) -> None:
    tasks = dies(ours, 0, "first", "end", after=True)
    ours.terminate(tasks[1:])
    ours.driver().skip_empty(ours.batch(0, "second", []))
    ours.check(1)


def test_staged_rows_that_are_gone_are_named_and_may_come_back(ours: Query) -> None:
    tasks = dies(ours, 0, "first", "end", after=True)
    ours.terminate(tasks)
    away = Path(tasks[0].path).rename(ours.folder / "away")
    for content in (None, away.read_bytes()[:-1], away.read_bytes().replace(b"0", b"1")):
        if content is not None:
            Path(tasks[0].path).write_bytes(content)
        with pytest.raises(StagingError, match=r"batch 0 is decided, and the rows .* read them once more from the sou"):
            ours.driver().commit(ours.batch(0, "second", []))
    away.rename(tasks[0].path)
    assert ours.driver().commit(ours.batch(0, "third", [])) is False
    ours.check(1)


def test_what_may_be_there_and_is_not_known_is_not_written_twice(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = dies(ours, 0, "first", "end", after=True)
    ours.terminate(tasks[:1])
    driver = ours.driver()
    monkeypatch.setattr(driver.cluster, "broker_setting", lambda name: "0")
    with pytest.raises(ClusterError, match=r"it is not known any more whether the rows .* that might be twice"):
        driver.commit(ours.batch(0, "second", []))
    monkeypatch.undo()
    assert ours.driver().commit(ours.batch(0, "third", [])) is False
    ours.check(1)


def test_what_is_decided_is_not_abandoned(ours: Query) -> None:
    """Spark also says that a batch has failed where only the answer to its commit was lost."""
    tasks = dies(ours, 0, "first", "end", after=True)
    for task in tasks:
        Path(task.path).unlink()  # nothing could be written again
    ours.driver().abandon(tasks, 0)
    markers, ours.markers = ours.markers, None
    ours.driver().abandon(tasks, 0)
    ours.markers = markers
    assert ours.driver().commit(ours.batch(0, "first", tasks)) is False
    ours.check(1)


def test_what_a_failed_batch_has_written_is_aborted_at_once(ours: Query) -> None:
    ours.driver().abandon(ours.tasks(0, "run"), 0)
    assert read_committed(ours.bootstrap, ours.topic, PARTITIONS) == []
    ours.run(0, "another")
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


def test_it_is_said_once_that_tasks_have_no_order_among_them(ours: Query, caplog: pytest.LogCaptureFixture) -> None:
    made = sink(ours, KEY_AND_VALUE)
    tasks = [Task(ours.id, "run", 0, number, number) for number in range(2)]
    apart = [Handed(task, [TopicPartition(ours.topic, task.partition_id)]) for task in tasks]
    shared = [Handed(task, [TopicPartition(ours.topic, 1)]) for task in tasks]
    for handed in (apart, shared, shared):
        made._tell_of_order(handed, "run")
    assert [record.getMessage() for record in caplog.records if "several tasks write to" in record.getMessage()] == [
        f"several tasks write to {ours.topic}-1: rows with one key keep their order where one task has all of them, as "
        "with one partition of the source or behind repartition(…, 'key'); see docs/spark-sink.md"
    ]


def test_a_thousand_tasks_fit_into_one_record(ours: Query) -> None:
    assert ours.markers is not None
    tasks = [
        Prepared(f"odradek-sink.{ours.id}.0b6c.{n}.0", n * 7919, n, ours.topic, n, "s3://bucket/dir", f"bucket/{n}", n)
        for n in range(1000)
    ]
    markers = MarkerTopic(ours.at, ours.markers)
    markers.ensure()
    assert len(markers.record(ours.id, Marker(3, "run", "plan", tuple(tasks), 1)).data) < 64 << 10


@pytest.mark.parametrize("step", ["prepare", "end_task", *(pytest.param(s, marks=SLOW) for s in DECIDING)])
def test_a_broker_that_is_killed_at_a_step_costs_nothing(step: str, topic: str, tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        query = Query(node.bootstrap, topic, tmp_path)

        def kill() -> None:
            node.kill()
            node.start()

        driver = query.driver(step)
        driver.instead = kill  # type: ignore[method-assign]
        if step == "prepare":
            first = query.task(0, "run", 0)
            writing, task, rows, staged = query.writing(0, "run", 1)
            produce = writing.produce

            def killed(session: Session, work: Work, deadline: float) -> None:
                produce(session, work, deadline)
                writing.produce = produce  # type: ignore[method-assign]
                kill()

            writing.produce = killed  # type: ignore[method-assign]
            assert driver.commit(query.batch(0, "run", [first, writing.prepare(task, rows, staged)]))
        else:
            query.run(0, "run", driver)
        query.run(1, "run", driver)
        query.check(2)
        close_all()
