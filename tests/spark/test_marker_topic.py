"""The marker in a compacted topic is found when the group's has expired, also beside open transactions of others.

A group that is deleted stands for one whose offsets have expired. `test_without_the_topic_…` shows what happens then.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, NewPartitions, ResourceType
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.record.builder import build_batch
from odradek.record.record import Record
from pyspark_odradek.client.cluster import RetriableError
from pyspark_odradek.client.connection import Connection
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, FencedError, OptionError
from pyspark_odradek.options import LATEST
from pyspark_odradek.record.decode import whole_batches
from pyspark_odradek.record.partitioner import partitions_of
from pyspark_odradek.topic_sink import transaction
from pyspark_odradek.topic_sink.marker_topic import Marker, MarkerTopic, NewestOfKey
from pyspark_odradek.topic_sink.transaction import TransactionalCommit
from pyspark_odradek.writers import batch_writer, stream_writer
from tests.spark import dying_source
from tests.spark.queries import ON_BOTH, numbered
from tests.spark.test_decode import marker as end_of_transaction
from tests.spark.test_exact_sink import copied, copy
from tests.spark.test_transaction import (
    PARTITIONS,
    DiesError,
    Dying,
    _clusters,
    cluster,
    committed,
    discard_sessions,
    work,
)
from tests.support.clients.confluent import admin, await_ends, create_topic, produce_all, read_all
from tests.support.waiting import PATIENCE_S

STEPS = [("begin", True), ("produce", False), ("produce", True), ("mark", True), ("end", False), ("end", True)]
_ids = itertools.count()


class Query:
    """One query: each run is a process of its own that knows only what the cluster knows."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.markers: str | None = f"{topic}-markers"
        self.id = f"odradek-sink.marked-{next(_ids)}"
        create_topic(bootstrap, topic, PARTITIONS)

    def settings(self, at: Any) -> dict[str, Any]:
        return {"marker_topic": None if self.markers is None else MarkerTopic(at, self.markers)}

    def run(self) -> TransactionalCommit:
        """A new run."""
        discard_sessions()
        at = cluster(self.bootstrap)
        return TransactionalCommit(at, self.id, **self.settings(at))

    def write(self, batch_id: int, run: TransactionalCommit | None = None) -> bool:
        """Commit batch `batch_id`, ten numbers of its own; by a new run where none is given."""
        return (run or self.run()).commit(self.batch(batch_id))

    def batch(self, batch_id: int) -> Any:
        return work(self.topic, batch_id, "run", range(batch_id * 10, batch_id * 10 + 10))

    def die(self, batch_id: int, step: str = "end", *, after: bool = True) -> None:
        """A run dies while it commits a batch; as it is, after the batch is there and before Spark heard of it."""
        discard_sessions()
        at = cluster(self.bootstrap)
        with pytest.raises(DiesError):
            Dying(at, self.id, step, after=after, **self.settings(at)).commit(self.batch(batch_id))

    def settle(self) -> None:
        """Wait until the last batch counts: its end is answered before it is in the topics."""
        run = self.run()
        run.cluster.retrying("the marker", run.marker)

    def expire(self) -> None:
        """The group's offsets are gone."""
        expire(self.bootstrap, self.id, self.topic, PARTITIONS)

    def written(self) -> list[int]:
        return committed(self.bootstrap, self.topic)


def expire(bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Delete a group, once it has what its last transaction commits for it, which is so a moment after the end."""
    asked = [TopicPartition(topic, number) for number in range(partitions)]

    def look() -> None:
        if all(offset < 0 for _, _, offset, _ in at.fetch_offsets(group, stable=True, partitions=asked)):
            raise RetriableError(f"{group} has no offsets yet")

    at = cluster(bootstrap)
    at.retrying("the offsets of the group", look)
    client = admin(bootstrap)  # a client that is collected before it is answered gives up
    client.delete_consumer_groups([group], request_timeout=PATIENCE_S)[group].result(PATIENCE_S)


@pytest.fixture
def query(bootstrap: str, topic: str) -> Iterator[Query]:
    """A query of each cluster in turn."""
    yield Query(bootstrap, topic)
    close_all()


@pytest.fixture
def ours(odradek: str, topic: str) -> Iterator[Query]:
    """A query of our cluster."""
    yield Query(odradek, topic)
    close_all()


def close_all() -> None:
    discard_sessions()
    while _clusters:
        _clusters.pop().close()


# -- what is found in a log -----------------------------------------------------------------------------------------


def written(offset: int, producer_id: int, key: bytes, value: bytes | None, *, transactional: bool = True) -> bytes:
    """A batch of two records, of which the second is of another key."""
    records = [Record(key, value, (), timestamp_ms=0), Record(b"another", b"value", (), timestamp_ms=0)]
    of_producer: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    batch: bytes = build_batch(
        records,
        base_offset=offset,
        compression="lz4",
        **of_producer if transactional else {},
        transactional=transactional,
    )
    return batch


events = st.tuples(st.sampled_from(["ours", "theirs", "commit", "abort", "plain"]), st.integers(1, 3))


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=25), st.integers(1, 5))
def test_a_record_counts_where_its_own_transaction_is_committed(log: list[tuple[str, int]], per_fetch: int) -> None:
    batches: list[bytes] = []
    opened: dict[int, int] = {}
    newest = -1
    for number, (what, producer_id) in enumerate(log):
        offset = number * 10
        if what in ("commit", "abort"):
            batches.append(end_of_transaction(producer_id, offset, commit=what == "commit"))
            ended = opened.pop(producer_id, -1)
            newest = max(newest, ended if what == "commit" else -1)
            continue
        key = b"another" if what == "theirs" else b"mine"
        batches.append(written(offset, producer_id, key, b"%d" % offset, transactional=what != "plain"))
        if what == "ours":
            opened[producer_id] = offset
        elif what == "plain":
            newest = max(newest, offset)
    found = NewestOfKey(b"mine")
    for first in range(0, len(batches), per_fetch):
        fetched = memoryview(b"".join(batches[first : first + per_fetch]))
        found.add_batches(fetched, list(whole_batches(fetched)))
    assert (-1 if found.newest is None else found.newest.offset) == newest
    assert {producer_id: entry.offset for producer_id, entry in found.open.items()} == opened


def test_below_the_last_stable_offset_nothing_is_open() -> None:
    """A cleaner may have removed the marker of a committed transaction."""
    fetched = memoryview(written(10, 7, b"mine", b"old") + written(20, 8, b"mine", None))
    found = NewestOfKey(b"mine")
    found.add_batches(fetched, list(whole_batches(fetched)))
    found.settle(20)
    assert found.newest is not None
    assert (found.newest.value, list(found.open)) == (b"old", [8])
    found.settle(22)
    assert (found.newest.value, list(found.open)) == (None, []), "who wants to be rid of a marker writes a tombstone"


# -- batches --------------------------------------------------------------------------------------------------------


def test_a_run_that_died_is_made_up_for_when_the_group_has_expired(query: Query) -> None:
    """A run dies in each step, one after another."""
    query.write(0)
    for batch_id, (step, after) in enumerate(STEPS, 1):
        query.die(batch_id, step, after=after)
        was_there = (step, after) == ("end", True)
        if was_there:
            query.expire()
        assert query.write(batch_id) is not was_there
    assert query.written() == list(range(10 * len(STEPS) + 10))


def test_an_expired_marker_without_the_topic_duplicates_a_batch(ours: Query) -> None:
    ours.markers = None
    ours.die(0)
    assert ours.write(0) is False
    ours.expire()
    assert ours.write(0)
    assert ours.written() == sorted([*range(10)] * 2)


def test_open_transactions_of_others_hide_no_marker(query: Query) -> None:
    query.write(0)
    assert query.markers is not None
    of_another = opened(query, "another", b"{}")
    query.die(1)
    query.expire()
    assert query.write(1) is False
    assert read_all(query.bootstrap, query.markers, isolation_level="read_committed")[-1].value() == (
        b'{"batch":0,"run":"run","plan":""}'
    ), "a reader of committed records sees nothing behind the open transaction"
    of_another.abort_transaction(30)
    assert query.written() == list(range(20))


@ON_BOTH
def test_the_topic_is_taken_up_and_left_at_any_restart(query: Query) -> None:
    markers, query.markers = query.markers, None
    query.die(0)
    query.markers = markers
    assert query.write(0) is False, "the topic has no marker of it, and the group has"
    query.die(1)
    query.markers = None
    assert query.write(1) is False
    query.die(2)
    query.markers = markers
    assert query.write(2) is False, "the topic has an older marker than the group"
    query.die(3)
    query.expire()
    assert query.write(3) is False
    assert query.written() == list(range(40))


def test_a_topic_that_was_given_more_partitions_still_says(query: Query) -> None:
    """Twice, so that the query's place is partition 0 again, where an old marker lies."""

    def places(query_id: str) -> list[int]:
        keys = pa.array([query_id.encode()], pa.binary())
        return [int(partitions_of(keys, count)[0]) for count in (1, 2, 3)]

    query.id = next(
        id_ for id_ in (f"odradek-sink.{query.topic}-{n}" for n in itertools.count()) if places(id_)[1:] == [1, 0]
    )
    assert query.markers is not None
    client = admin(query.bootstrap)
    query.die(0)
    for batch_id, count in enumerate((2, 3)):
        query.expire()
        made = client.create_partitions([NewPartitions(query.markers, count)], operation_timeout=30)
        made[query.markers].result(PATIENCE_S)
        while len(client.list_topics(query.markers, timeout=PATIENCE_S).topics[query.markers].partitions) < count:
            time.sleep(0.01)
        assert query.write(batch_id) is False
        query.die(batch_id + 1)
    query.expire()
    assert query.write(2) is False
    assert query.written() == list(range(30))


def test_of_two_runs_the_older_one_is_fenced(query: Query) -> None:
    older = query.run()
    assert query.write(0, older)
    of_older = dict(transaction._SESSIONS)
    younger = query.run()
    assert younger.commit(query.batch(1)._replace(run_id="younger"))
    transaction._SESSIONS.update(of_older)
    with pytest.raises(FencedError, match="two drivers run on one checkpoint"):
        older.commit(query.batch(1))
    query.expire()
    with pytest.raises(FencedError, match="has taken over its sink, and has written batch 1"):
        query.write(0)
    assert query.written() == list(range(20))


def test_a_process_reads_on_from_where_it_was(ours: Query) -> None:
    """Each batch of a query may run in another process of an application."""
    run = ours.run()
    fetched: list[int] = []
    topic = run.marker_topic
    assert topic is not None
    fetch = topic._fetch

    def noted(partition: TopicPartition, position: int) -> Any:
        fetched.append(position)
        return fetch(partition, position)

    topic._fetch = noted  # type: ignore[method-assign]  # the test replaces it
    for batch_id in range(4):
        transaction._SESSIONS.clear()
        assert ours.write(batch_id, run)
        await_ends(ours.bootstrap, topic.topic)
    assert sorted(fetched) == fetched
    assert fetched[-1] >= 6, "a marker and the end of its transaction each"
    transaction._SESSIONS.clear()
    assert run.cluster.retrying("the marker", run.marker) == Marker(3, "run")
    ours.expire()
    assert run.marker() == Marker(3, "run"), "what was read before counts"


def test_an_open_transaction_counts_once_it_has_ended(query: Query) -> None:
    run = query.run()
    assert query.write(0, run)
    (session,) = transaction._SESSIONS.values()
    deadline = time.monotonic() + PATIENCE_S
    run.produce(session, query.batch(1), deadline)
    assert run.marker_topic is not None
    with pytest.raises(RetriableError, match=r"a transaction of .* is open"):
        run.marker_topic.read(query.id, stable=True)
    assert run.marker_topic.read(query.id, stable=False) == Marker(0, "run")
    run.end(session, deadline)
    found = run.cluster.retrying("the marker", lambda: run.marker_topic.read(query.id, stable=True))  # type: ignore[union-attr]  # the run has a marker topic
    assert found == Marker(1, "run")


def cut(answer: PartitionData, batch_count: int) -> PartitionData:
    """A fetch as it is answered where the high watermark lies behind so many batches."""
    fetched = memoryview(answer.records or b"")  # type: ignore[arg-type]  # bytes, once they are received
    last = list(whole_batches(fetched))[batch_count - 1]
    answer.records = bytes(fetched[: last.end])
    answer.high_watermark = last.last_offset + 1
    answer.last_stable_offset = min(answer.last_stable_offset, answer.high_watermark)
    return answer


def answering(run: TransactionalCommit, *changes: Callable[[PartitionData], PartitionData]) -> MarkerTopic:
    """The run's marker topic, whose first fetches are changed before they are read."""
    topic = run.marker_topic
    assert topic is not None
    fetch, left = topic._fetch, list(changes)
    topic._fetch = lambda *asked: left.pop(0)(fetch(*asked)) if left else fetch(*asked)  # type: ignore[method-assign]  # the test replaces it
    return topic


def opened(query: Query, key: str, value: bytes) -> Producer:
    """Another producer, which has an open transaction among the markers."""
    producer = Producer({"bootstrap.servers": query.bootstrap, "transactional.id": f"another-{query.id}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    assert query.markers is not None
    producer.produce(query.markers, key=key.encode(), value=value)
    assert producer.flush(30) == 0
    return producer


def test_a_stale_high_watermark_hides_no_marker(ours: Query) -> None:
    ours.write(0)
    of_another = opened(ours, "another", b"{}")
    ours.write(1)
    ours.settle()
    topic = answering(ours.run(), lambda answer: cut(answer, 3))
    assert topic.read(ours.id, stable=True) == Marker(1, "run")
    of_another.abort_transaction(30)


def test_an_abort_above_the_high_watermark_counts(ours: Query) -> None:
    run = ours.run()
    assert ours.write(0, run)
    (session,) = transaction._SESSIONS.values()
    run.produce(session, ours.batch(1), time.monotonic() + PATIENCE_S)
    assert ours.markers is not None
    partition = TopicPartition(ours.markers, 0)

    def abort_meanwhile(answer: PartitionData) -> PartitionData:
        run.end(session, time.monotonic() + PATIENCE_S, committed=False)
        while (stable := run.cluster.list_offsets({partition: LATEST})[partition]) < 4:
            time.sleep(0.01)
        answer.last_stable_offset = stable
        return answer

    assert answering(run, abort_meanwhile).read(ours.id, stable=True) == Marker(0, "run")


def test_a_hanging_transaction_is_waited_for_without_other_evidence(ours: Query) -> None:
    ours.write(0)
    markers, ours.markers = ours.markers, None
    ours.die(1)
    ours.markers = markers
    hanging = opened(ours, ours.id, b'{"batch":1,"run":"run","plan":""}')
    assert ours.write(1) is False, "the group's offsets show that batch"
    ours.expire()
    with pytest.raises(
        RetriableError, match=f"find-hanging --topic {markers} --partition 0`.*abort.*counts as not written"
    ):
        ours.run().marker()
    produce_all(ours.bootstrap, str(markers), [(ours.id.encode(), b'{"batch":1,"run":"by hand","plan":""}')])
    assert ours.run().marker() == Marker(1, "by hand")
    hanging.abort_transaction(30)


def test_a_damaged_batch_is_reported_with_its_place(ours: Query) -> None:
    ours.write(0)

    def damage(answer: PartitionData) -> PartitionData:
        answer.records = bytes(answer.records or b"")[:-1] + b"?"  # type: ignore[arg-type]  # bytes, once they are received
        return answer

    with pytest.raises(
        ClusterError, match=f"markerTopic: {ours.markers}-0 cannot be read from offset 0 on: .*checksum"
    ):
        answering(ours.run(), damage).read(ours.id, stable=True)


def test_a_quota_puts_a_read_off_and_a_failure_keeps_what_was_read(
    ours: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in range(2):
        ours.write(batch_id)
    ours.settle()
    run = ours.run()
    asked: list[int] = []
    send_fetch = run.cluster.send_fetch

    def sent(connection: Any, positions: Any, *given: Any, **named: Any) -> None:
        asked.extend(positions.values())
        send_fetch(connection, positions, *given, **named)

    def fails(answer: PartitionData) -> PartitionData:
        raise ConnectionError("gone")

    monkeypatch.setattr(run.cluster, "send_fetch", sent)
    receive, put_off = Connection.receive, [True]

    def received(connection: Connection) -> Any:
        answer = receive(connection)
        if isinstance(answer, FetchResponse) and put_off and put_off.pop():
            return FetchResponse(throttle_time_ms=1, responses=[])
        return answer

    monkeypatch.setattr(Connection, "receive", received)
    topic = answering(run, lambda answer: cut(answer, 2), fails, fails)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            topic.read(ours.id, stable=True)
    assert topic.read(ours.id, stable=True) == Marker(1, "run")
    assert asked == [0, 0, 2, 2, 2]


@ON_BOTH
def test_the_topic_is_made_compacted_and_any_other_is_refused(query: Query) -> None:
    assert query.markers is not None
    query.write(0)
    client = admin(query.bootstrap)
    (described,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, query.markers)]).values()
    found = described.result(60)
    assert (found["cleanup.policy"].value, found["segment.bytes"].value) == ("compact", str(4 << 20))
    query.run()
    for policy in ("delete", "compact,delete"):
        query.markers = f"{query.topic}-{policy.replace(',', '-')}"
        create_topic(query.bootstrap, query.markers, cleanup_policy=policy)
        with pytest.raises(ClusterError, match=f"has cleanup.policy={policy}, and has to have compact alone"):
            query.write(1)
    assert query.written() == list(range(10)), "nothing was written, and no producer fenced"


def test_a_malformed_marker_is_reported_and_a_tombstone_removes_one(ours: Query) -> None:
    ours.write(0)
    ours.expire()
    assert ours.markers is not None
    produce_all(ours.bootstrap, ours.markers, [(ours.id.encode(), b"[1]")])
    with pytest.raises(ClusterError, match=r"has b'\[1\]' under the key .* which is not a marker"):
        ours.write(1)
    produce_all(ours.bootstrap, ours.markers, [(ours.id.encode(), None)])
    assert ours.run().marker() is None


def test_a_topic_that_is_gone_while_a_run_commits_is_reported(ours: Query) -> None:
    run = ours.run()
    assert ours.write(0, run)
    assert ours.markers is not None
    client = admin(ours.bootstrap)
    client.delete_topics([ours.markers], operation_timeout=30)[ours.markers].result(PATIENCE_S)
    with pytest.raises(ClusterError, match=r"no such topic.*start the query again, which recreates it"):
        ours.write(1, run)
    assert ours.write(1)
    assert ours.written() == list(range(20))


def test_a_marker_that_may_be_expired_is_reported(
    query: Query, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "offsets").mkdir()
    days_8 = 8 * 24 * 3_600_000
    for batch_id, age_ms in ((0, days_8), (1, days_8 // 2), (2, days_8)):
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000 - age_ms})
        (tmp_path / "offsets" / str(batch_id)).write_text(f'v1\n{head}\n{{"in": {{"0": 7}}}}')

    def reported(batch_id: int) -> list[str]:
        caplog.clear()
        run = query.run()
        run.checkpoint = str(tmp_path)
        run.commit(query.batch(batch_id))
        # A cluster that is slow is a warning, too.
        warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        return [said for said in warned if "was planned at" in said]

    query.markers = None
    (said,) = reported(0)
    assert said.startswith("batch 0 was planned at ")
    assert "offsets.retention.minutes=10080" in said
    assert "With the option markerTopic markers do not expire" in said
    query.expire()
    assert reported(1) == [], "it was planned a moment ago"
    assert reported(2) == [], "the marker of an older batch is there"
    query.expire()
    query.markers = f"{query.topic}-markers"
    assert [said.endswith("is written twice now") for said in reported(2)] == [True]


# -- the option -----------------------------------------------------------------------------------------------------

VALUE = StructType([StructField("value", StringType())])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delivery": "at_least_once"}, "markerTopic needs a streaming query and delivery=exactly_once"),
        ({"topic": "markers"}, "markerTopic and topic are the same"),
        ({"markerTopic": ""}, "markerTopic names no topic"),
        ({"gate": "g", "groupId": "a", "checkpointLocation": "/tmp/any"}, "remove markerTopic"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, str], says: str) -> None:
    usual = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "stagingLocation": "/tmp/any"}
    with pytest.raises(OptionError, match=says):
        stream_writer(usual | {"markerTopic": "markers"} | options, VALUE, False)


def test_a_batch_query_has_no_marker_to_keep() -> None:
    for delivery in ("exactly_once", "at_least_once"):
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": delivery, "markerTopic": "m"}
        with pytest.raises(OptionError, match="markerTopic needs a streaming query"):
            batch_writer(options, VALUE, False)


def test_the_topic_is_made_with_the_replication_factor_that_is_asked_for(odradek: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": odradek, "topic": "t", "stagingLocation": "/tmp/any"}
    options["topicReplicationFactor"] = "7"
    with pytest.raises(OptionError, match="has an effect only with createTopic=true or markerTopic"):
        stream_writer(options, VALUE, False)
    made: Any = stream_writer(options | {"markerTopic": topic}, VALUE, False)
    with pytest.raises(ClusterError, match="cannot be created: INVALID_REPLICATION_FACTOR"):
        made.transaction("query", 0).marker_topic.ensure()


def test_rows_that_go_among_the_markers_are_refused(odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic, cleanup_policy="compact")
    schema = StructType([StructField("value", StringType()), StructField("topic", StringType())])
    options = {"kafka.bootstrap.servers": odradek, "markerTopic": topic, "stagingLocation": str(tmp_path)}
    made: Any = stream_writer(options, schema, False)
    rows = pa.record_batch({"value": ["v"], "topic": [topic]})
    staged = made.stage(iter([rows]), f"query-{topic}", "run", 0)
    with pytest.raises(OptionError, match=f"rows go to the topic {topic}, which is the option markerTopic"):
        made.commit([staged], 0)
    assert read_all(odradek, topic) == []


@pytest.mark.slow
def test_a_query_whose_process_dies_and_whose_group_expires(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}-copy", 2)
    numbered(bootstrap, topic, range(50))
    spark.dataSource.register(dying_source.DyingSource)
    plan = tmp_path / "plan"
    plan.write_text("after end")
    options = {"markerTopic": f"{topic}-markers"}
    with pytest.raises(Exception):  # noqa: B017 - of Spark, about a worker that is gone
        copy(spark, bootstrap, topic, tmp_path, "odradek_dying", plan=str(plan), **options)
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    expire(bootstrap, f"odradek-sink.{query_id}", f"{topic}-copy", 2)
    close_all()
    numbered(bootstrap, topic, range(50, 80))
    copy(spark, bootstrap, topic, tmp_path, **options)
    assert copied(bootstrap, topic) == list(range(80))
