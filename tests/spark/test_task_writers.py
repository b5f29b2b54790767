"""Tasks that write to the brokers, and a driver that decides, without Spark: stopped, fenced and repeated at each step.

A run is a driver with a name of its own; a step that raises stands for a driver that dies there. A transaction that an
attempt or a run leaves open would be aborted by its timeout; here an operator aborts it, which has the same effect.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek.errors import ClusterError, FencedError, StagingError
from pyspark_odradek.micro_batch.staging import Staging
from pyspark_odradek.topic_sink import transaction
from pyspark_odradek.topic_sink.exact_sink import sweep
from pyspark_odradek.topic_sink.marker_topic import Marker, MarkerTopic
from pyspark_odradek.topic_sink.task_writers import decided
from pyspark_odradek.topic_sink.task_writers.decided import DecidedCommit
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared
from pyspark_odradek.topic_sink.transaction import Session, Work
from tests.spark.task_writers_query import BOTH, PARTITIONS, SLOW, Query, close_all, dies, on_each_cluster, on_ours
from tests.spark.test_transaction import DiesError
from tests.support.clients.confluent import read_committed
from tests.support.nodes.node import Node

DECIDING = ("produce", "mark", "end")
SHORT = [("begin", True), ("mark", True), ("end", False), ("end", True), ("end_task", True), ("end_tasks", True)]
# A driver's: up to the end of the marker's transaction, which decides, and behind it.
STEPS = [
    pytest.param(step, after, marks=[] if (step, after) in SHORT else SLOW)
    for step in ("begin", "marker", "produce", "mark", "end", "end_tasks", "end_task")
    for after in (False, True)
]


query, ours = pytest.fixture(on_each_cluster), pytest.fixture(on_ours)


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


def test_transactions_ended_by_brokers_before_the_decision_are_repaired(query: Query) -> None:
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
@pytest.mark.parametrize(
    "part", [pytest.param(decided.PART_OF_TIMEOUT, id="at once", marks=SLOW), pytest.param(0, id="in parts")]
)
def test_transactions_ended_by_brokers_amid_the_ends_are_repaired_once(
    query: Query, step: str, after: bool, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One had ended, and its id was used again; of the other the rows are written by a run that dies, and the next."""
    monkeypatch.setattr(decided, "PART_OF_TIMEOUT", part)
    tasks = dies(query, 0, "first", "end_task", after=True)
    query.terminate(tasks)
    repairing = query.driver(step, after=after)
    with pytest.raises(DiesError):
        repairing.commit(query.batch(0, "second", []))
    assert query.run(0, "third") is False
    query.run(1, "third")
    query.check(2)


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
    """Another run has decided the batch: this run is late, and not fenced."""
    ours.terminate(dies(ours, 0, "first", "end", after=True))
    driver = ours.driver("commit_offsets")
    driver.transaction_timeout_ms = 300

    def await_time_out() -> None:
        read_committed(ours.bootstrap, ours.topic, PARTITIONS)

    driver.instead = await_time_out  # type: ignore[method-assign]  # the test replaces it
    assert driver.commit(ours.batch(0, "second", [])) is False
    ours.check(1)


@pytest.mark.slow
def test_a_repair_that_takes_longer_than_the_time_out_ends(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with Node(tmp_path / "node", {interval: 50}) as node:
        query = Query(node.bootstrap, topic, tmp_path)
        query.terminate(dies(query, 0, "first", "end", after=True))
        driver, frames = query.driver(), Prepared.frames
        driver.transaction_timeout_ms = 1000

        def slowly(self: Prepared) -> Iterator[Any]:
            for frame in frames(self):
                yield frame
                time.sleep(0.6)

        monkeypatch.setattr(Prepared, "frames", slowly)
        assert driver.commit(query.batch(0, "second", [])) is False
        query.check(1)
        close_all()


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


def test_of_two_drivers_the_older_one_stops_whatever_process_commits(query: Query) -> None:
    query.run(0, "older")
    younger = query.driver()
    query.run(1, "younger", younger)
    of_younger = dict(transaction._SESSIONS)
    for batch_id in (1, 2):
        with pytest.raises(FencedError, match="this is the older one"):
            query.run(batch_id, "older")
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

    older.instead = overtaken  # type: ignore[method-assign]  # the test replaces it
    if step == "repair":
        query.terminate(tasks)
        with pytest.raises(FencedError, match="another run of this query has taken over"):
            older.commit(query.batch(0, "older", tasks))
    else:
        assert older.commit(query.batch(0, "older", tasks))
    query.check(2)


def test_a_checkpoint_that_was_put_back_loses_no_decided_batch(ours: Query) -> None:
    """No run may go on with such a checkpoint, so this run ends the open transactions of the decided batch."""
    ours.run(0, "first")
    dies(ours, 1, "first", "end", after=True)
    with pytest.raises(FencedError, match="put back to an older state"):
        ours.driver().commit(ours.batch(0, "second", [])._replace(tasks=None))
    ours.check(2)


def test_a_run_that_was_overtaken_leaves_the_newer_ones_files(tmp_path: Path) -> None:
    """The files of a decided batch are needed if brokers have aborted it."""
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
    whole = away.read_bytes()
    topic_bytes, _, size = struct.unpack_from(">HiI", whole, 4)  # of the first frame, behind its checksum
    first, rest = whole[: 14 + topic_bytes + size], whole[14 + topic_bytes + size :]
    elsewhere = bytes([*whole[:9], whole[9] ^ 1, *whole[10:]])
    for content in (None, whole[:-1], rest, rest + first, elsewhere, whole.replace(b"0", b"1")):
        if content is not None:
            Path(tasks[0].path).write_bytes(content)
        with pytest.raises(StagingError, match=r"batch 0 is decided, and the rows .* once more from the sou") as raised:
            ours.driver().commit(ours.batch(0, "second", []))
        assert "nothing of this batch" not in str(raised.value), "other tasks' rows are there"
    away.rename(tasks[0].path)
    assert ours.driver().commit(ours.batch(0, "third", [])) is False
    ours.check(1)


def test_rows_that_may_be_there_are_not_written_twice(ours: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = dies(ours, 0, "first", "end", after=True)
    ours.terminate(tasks[:1])
    driver = ours.driver()
    monkeypatch.setattr(driver.cluster, "broker_setting", lambda name: "0")
    with pytest.raises(ClusterError, match=r"it is not known any more whether the rows .* that might be twice"):
        driver.commit(ours.batch(0, "second", []))
    monkeypatch.undo()
    assert ours.driver().commit(ours.batch(0, "third", [])) is False
    ours.check(1)


def test_a_decided_batch_is_not_abandoned(ours: Query) -> None:
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


def test_rows_of_a_failed_batch_are_aborted_at_once(ours: Query) -> None:
    ours.driver().abandon(ours.tasks(0, "run"), 0)
    assert read_committed(ours.bootstrap, ours.topic, PARTITIONS) == []
    ours.run(0, "another")
    ours.check(1)


def test_a_failed_batch_is_not_aborted_task_by_task_for_ever(ours: Query, caplog: pytest.LogCaptureFixture) -> None:
    tasks, driver = ours.tasks(0, "run"), ours.driver("end_task")
    driver.cluster.settings = replace(driver.cluster.settings, default_api_timeout_ms=0)
    asked = []

    def unanswered(*_: Any, **__: Any) -> None:
        asked.append(1)
        raise TimeoutError("no answer")

    driver.end_task = unanswered  # type: ignore[assignment,method-assign]  # the test replaces it
    driver.abandon(tasks, 0)
    assert len(asked) == 1
    assert "what 2 tasks have written in vain is aborted by its timeout" in caplog.text
    assert ours.run(0, "another")
    ours.check(1)


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
        driver.instead = kill  # type: ignore[method-assign]  # the test replaces it
        if step == "prepare":
            first = query.task(0, "run", 0)
            writing, task, rows, staged = query.writing(0, "run", 1)
            produce = writing.produce

            def killed(session: Session, work: Work, deadline: float) -> None:
                produce(session, work, deadline)
                writing.produce = produce  # type: ignore[method-assign]  # the test replaces it
                kill()

            writing.produce = killed  # type: ignore[method-assign]  # the test replaces it
            assert driver.commit(query.batch(0, "run", [first, writing.prepare(task, rows, staged)]))
        else:
            query.run(0, "run", driver)
        query.run(1, "run", driver)
        query.check(2)
        close_all()
