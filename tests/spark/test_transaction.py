"""The commit of a batch in one transaction, without Spark: stopped before and after each step, fenced, and repeated.

A run of the query is a `TransactionalCommit` with a session of its own; a step that raises stands for a driver that
dies there, since nothing is done for it afterwards.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, FencedError, StagingError
from pyspark_odradek.record.encode import BatchFormat, EncodedBatch, RowEncoder
from pyspark_odradek.topic_sink import marker_topic, transaction
from pyspark_odradek.topic_sink.marker_topic import Marker
from pyspark_odradek.topic_sink.transaction import TransactionalCommit, Work
from tests.spark.queries import ON_BOTH
from tests.support.clients.confluent import create_topic, read_committed
from tests.support.nodes.node import Node

PARTITIONS = 3
STEPS = ("begin", "marker", "produce", "mark", "end")
_ids = itertools.count()


class DiesError(BaseException):
    """The driver is gone: nothing of the product catches this."""


class Dying(TransactionalCommit):
    """A driver that dies before or after one of its steps."""

    def __init__(self, cluster: Cluster, transactional_id: str, step: str, *, after: bool, **named: Any) -> None:
        super().__init__(cluster, transactional_id, **named)
        self.step, self.after = step, after

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in STEPS or name != self.step:
            return found

        def dies(*args: Any, **named: Any) -> Any:
            if named.get("committed") is False:  # a commit that starts again takes back what it had begun
                return found(*args, **named)
            if self.after:
                found(*args, **named)
            raise DiesError

        return dies


_clusters: list[Cluster] = []


def cluster(bootstrap: str) -> Cluster:
    """A connected view of the cluster, as each process has its own; closed when the test ends."""
    _clusters.append(Cluster(ClientSettings.parse({"bootstrap.servers": bootstrap})))
    return _clusters[-1]


def work(topic: str, batch_id: int | None, run_id: str, numbers: range) -> Work:
    rows = pa.record_batch(
        {
            "key": pa.array([b"%d" % n for n in numbers], pa.binary()),
            "value": pa.array([b"%d" % n for n in numbers], pa.binary()),
        }
    )
    batches = RowEncoder(topic, lambda _: PARTITIONS, BatchFormat(batch_bytes=300)).encode(
        rows, time.time_ns() // 1_000_000
    )
    partitions = frozenset(TopicPartition(batch.topic, batch.partition_id) for batch in batches)
    return Work(batch_id, run_id, partitions, lambda: batches)


def committed(bootstrap: str, topic: str) -> list[int]:
    messages = read_committed(bootstrap, topic, PARTITIONS)
    return sorted(int(message.value() or b"") for message in messages)


def discard_sessions() -> None:
    """Forget all sessions and everything that was read, as in a new process."""
    transaction._SESSIONS.clear()
    marker_topic._READ.clear()


def await_marker(committing: TransactionalCommit, batch_id: int) -> Marker:
    """The newest marker, once it is of this batch at least: it is seen a moment after the commit."""
    while (found := committing.cluster.retrying("the marker", committing.marker)) is None or found.batch_id < batch_id:
        time.sleep(0.01)
    return found


@pytest.fixture
def query() -> Iterator[str]:
    discard_sessions()
    yield f"odradek-sink.test-{next(_ids)}"
    discard_sessions()
    while _clusters:
        _clusters.pop().close()


def test_batches_one_after_another(bootstrap: str, topic: str, query: str) -> None:
    create_topic(bootstrap, topic, PARTITIONS)
    committing = TransactionalCommit(cluster(bootstrap), query)
    for batch_id in range(5):
        assert committing.commit(work(topic, batch_id, "run", range(batch_id * 100, batch_id * 100 + 100)))
    assert committed(bootstrap, topic) == list(range(500))
    assert await_marker(committing, 4) == Marker(4, "run")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_at_a_step_is_made_up_for(
    bootstrap: str, topic: str, query: str, step: str, after: bool
) -> None:
    create_topic(bootstrap, topic, PARTITIONS)
    TransactionalCommit(cluster(bootstrap), query).commit(work(topic, 0, "first", range(100)))
    discard_sessions()
    with pytest.raises(DiesError):
        Dying(cluster(bootstrap), query, step, after=after).commit(work(topic, 1, "second", range(100, 200)))
    discard_sessions()
    restarted = TransactionalCommit(cluster(bootstrap), query)
    was_there = step == "end" and after
    assert restarted.commit(work(topic, 1, "third", range(100, 200))) is not was_there
    restarted.commit(work(topic, 2, "third", range(200, 300)))
    assert committed(bootstrap, topic) == list(range(300))


def test_two_processes_take_turns_with_the_batches_of_a_run(bootstrap: str, topic: str, query: str) -> None:
    """Spark's processes do so if an application has several queries: no batch counts as another run's."""
    create_topic(bootstrap, topic, PARTITIONS)
    processes = [TransactionalCommit(cluster(bootstrap), query) for _ in range(2)]
    held: list[dict[tuple[int, str], transaction.Session]] = [{}, {}]
    for batch_id, number in enumerate((0, 1, 0, 0, 1, 1, 0)):
        discard_sessions()
        transaction._SESSIONS.update(held[number])
        assert processes[number].commit(work(topic, batch_id, "run", range(batch_id * 10, batch_id * 10 + 10)))
        held[number] = dict(transaction._SESSIONS)
    assert committed(bootstrap, topic) == list(range(70))


def test_of_two_drivers_the_older_one_stops_whatever_process_commits(bootstrap: str, topic: str, query: str) -> None:
    """A process that has missed a batch begins again: it would fence the other driver, and be fenced in turn."""
    create_topic(bootstrap, topic, PARTITIONS)
    older, younger = (TransactionalCommit(cluster(bootstrap), query) for _ in range(2))
    assert older.commit(work(topic, 0, "older", range(10)))
    discard_sessions()
    assert not younger.commit(work(topic, 0, "younger", range(10)))
    assert younger.commit(work(topic, 1, "younger", range(10, 20)))
    of_younger = dict(transaction._SESSIONS)
    for batch_id in (1, 2):
        discard_sessions()
        with pytest.raises(FencedError, match="this is the older one"):
            older.commit(work(topic, batch_id, "older", range(10)))
    transaction._SESSIONS.update(of_younger)
    assert younger.commit(work(topic, 2, "younger", range(20, 30)))
    discard_sessions()
    assert younger.commit(work(topic, 3, "restarted", range(30, 40))), "one that is started takes over"
    assert await_marker(younger, 3) == Marker(3, "restarted", before=("younger", "older"))
    assert committed(bootstrap, topic) == list(range(40))


def test_a_batch_is_known_by_its_plan_where_that_is_reported(odradek: str, topic: str, query: str) -> None:
    create_topic(odradek, topic, PARTITIONS)
    committing = TransactionalCommit(cluster(odradek), query)
    assert committing.commit(work(topic, 0, "run", range(10))._replace(plan="one"))
    assert await_marker(committing, 0) == Marker(0, "run", "one")
    for plan in ("one", ""):
        discard_sessions()
        assert not committing.commit(work(topic, 0, "again", range(10))._replace(plan=plan))
    of_healthy = dict(transaction._SESSIONS)
    discard_sessions()
    with pytest.raises(FencedError, match="a batch 0 of this query already, which was planned otherwise"):
        committing.commit(work(topic, 0, "put back", range(20))._replace(plan="two"))
    transaction._SESSIONS.update(of_healthy)
    assert committing.commit(work(topic, 1, "again", range(10, 20))), "one that has to end fences no producer"
    assert committed(odradek, topic) == list(range(20))


def test_a_process_goes_on_where_it_has_missed_no_batch(odradek: str, topic: str, query: str) -> None:
    create_topic(odradek, topic, PARTITIONS)
    committing = TransactionalCommit(cluster(odradek), query)
    epochs = []
    for batch_id in range(4):
        if batch_id == 2:
            committing.skip_empty(Work(batch_id, "run", frozenset(), list))
            continue
        committing.commit(work(topic, batch_id, "run", range(10)))
        epochs += [session.producer_epoch for session in transaction._SESSIONS.values()]
    assert epochs == [0, 0, 0]


@ON_BOTH
def test_of_two_runs_the_older_one_is_fenced(bootstrap: str, topic: str, query: str) -> None:
    create_topic(bootstrap, topic, PARTITIONS)
    older, younger = (TransactionalCommit(cluster(bootstrap), query) for _ in range(2))
    assert older.commit(work(topic, 0, "older", range(100)))
    of_older = dict(transaction._SESSIONS)
    assert younger.commit(work(topic, 1, "younger", range(100, 200)))
    transaction._SESSIONS.update(of_older)  # the older run is another process, with its own session
    with pytest.raises(
        FencedError, match=r"another run of this query has taken over.*two drivers run on one checkpoint"
    ):
        older.commit(work(topic, 1, "older", range(100, 200)))
    discard_sessions()
    with pytest.raises(FencedError, match="has batch 1 of this query already, and this driver is at batch 0"):
        older.commit(work(topic, 0, "older again", range(100)))
    discard_sessions()
    assert younger.commit(work(topic, 2, "younger", range(200, 300)))
    of_younger = dict(transaction._SESSIONS)
    discard_sessions()
    await_marker(older, 2)
    with pytest.raises(FencedError, match="this driver is at batch 1"):
        older.commit(work(topic, 1, "behind", range(100, 200)))
    transaction._SESSIONS.update(of_younger)
    assert younger.commit(work(topic, 3, "younger", range(300, 400))), "one that is behind fences no producer"
    assert committed(bootstrap, topic) == list(range(400))


def test_a_run_that_is_fenced_in_the_middle_leaves_nothing(bootstrap: str, topic: str, query: str) -> None:
    create_topic(bootstrap, topic, PARTITIONS)

    class Overtaken(TransactionalCommit):
        def mark(self, session: Any, work_: Work, deadline: float) -> None:
            mine = dict(transaction._SESSIONS)
            discard_sessions()
            TransactionalCommit(cluster(bootstrap), query).commit(work(topic, 0, "younger", range(100)))
            transaction._SESSIONS.update(mine)
            super().mark(session, work_, deadline)

    with pytest.raises(FencedError, match="two drivers run on one checkpoint"):
        Overtaken(cluster(bootstrap), query).commit(work(topic, 0, "older", range(500, 600)))
    assert committed(bootstrap, topic) == list(range(100))


def test_a_failed_write_is_aborted_at_once(odradek: str, topic: str, query: str) -> None:
    create_topic(odradek, topic, PARTITIONS, max_message_bytes=200)
    create_topic(odradek, f"{topic}-wide", PARTITIONS)
    committing = TransactionalCommit(cluster(odradek), query)
    with pytest.raises(ClusterError, match=r"refused: MESSAGE_TOO_LARGE.*lower the option kafka\.batch\.size"):
        committing.commit(work(topic, 0, "run", range(100)))

    def broken() -> Iterator[EncodedBatch]:
        yield from list(work(topic, 0, "run", range(3)).batches())[:1]
        raise StagingError("the file is gone")

    with pytest.raises(StagingError, match="the file is gone"):
        committing.commit(work(topic, 0, "run", range(3))._replace(batches=broken))
    assert committed(odradek, topic) == [], "readers of committed records wait for no open transaction"
    assert committing.commit(work(f"{topic}-wide", 0, "run", range(100)))
    assert committed(odradek, f"{topic}-wide") == list(range(100))


def test_a_transaction_that_timed_out_begins_again(odradek: str, topic: str, query: str) -> None:
    import time

    create_topic(odradek, topic, PARTITIONS)

    class Slow(TransactionalCommit):
        slept = False

        def mark(self, session: Any, work_: Work, deadline: float) -> None:
            if not self.slept:
                self.slept = True
                time.sleep(3)
            super().mark(session, work_, deadline)

    slow = Slow(cluster(odradek), query, transaction_timeout_ms=500)
    assert slow.commit(work(topic, 0, "run", range(100)))
    assert committed(odradek, topic) == list(range(100))


def test_a_timeout_above_the_clusters_is_reported(odradek: str, topic: str, query: str) -> None:
    create_topic(odradek, topic, PARTITIONS)
    committing = TransactionalCommit(cluster(odradek), query, transaction_timeout_ms=2_000_000_000)
    with pytest.raises(ClusterError, match=r"above the cluster's transaction\.max\.timeout\.ms"):
        committing.commit(work(topic, 0, "run", range(10)))


def test_a_batch_query_has_no_marker(odradek: str, topic: str, query: str) -> None:
    create_topic(odradek, topic, PARTITIONS)
    committing = TransactionalCommit(cluster(odradek), query)
    assert committing.commit(work(topic, None, "", range(100)))
    assert committing.marker() is None
    assert transaction._SESSIONS == {}, "a process that lives on keeps nothing of a write that is done"
    assert committed(odradek, topic) == list(range(100))


def test_a_broker_that_is_killed_in_each_step_costs_nothing(topic: str, query: str, tmp_path: Path) -> None:
    with Node(tmp_path, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}) as node:
        create_topic(node.bootstrap, topic, PARTITIONS)

        class Killing(TransactionalCommit):
            step = ""

            def __getattribute__(self, name: str) -> Any:
                found = super().__getattribute__(name)
                if name not in STEPS or name != self.step:
                    return found

                def kills(*args: Any, **named: Any) -> Any:
                    self.step = ""
                    node.kill()
                    node.start()
                    return found(*args, **named)

                return kills

        committing = Killing(cluster(node.bootstrap), query)
        for batch_id, step in enumerate(("produce", "mark", "end")):
            committing.step = step
            assert committing.commit(work(topic, batch_id, "run", range(batch_id * 100, batch_id * 100 + 100)))
        assert committed(node.bootstrap, topic) == list(range(300))
