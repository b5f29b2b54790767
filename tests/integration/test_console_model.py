"""The console's model of a real cluster: snapshots, rates between two, records within limits, resets computed once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.client import pipeline_progress
from odradek.client.admin import ResourceType, delete_topic, describe_configs
from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.connection import UnreachableError
from odradek.client.fetch import fetch_records
from odradek.client.pipeline_progress import TOPIC as PROGRESS
from odradek.client.pipeline_progress import ProgressReader, write_progress
from odradek.client.produce import produce_record
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.real_io import RealClock, RealNetwork
from odradek.console import browse as browsing
from odradek.console.browse import BrowseError, Search, SearchQuery, begin_following, browse, follow, read_one
from odradek.console.clusters import ClusterConfig, single_cluster
from odradek.console.snapshot import broker_rows, group_rows, point_of, topic_rows
from odradek.console.watch import Watch, take_snapshot
from odradek.record.record import Record
from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.pipelines import published as publishing
from pyspark_odradek.pipelines.published import StatusWriter
from tests.support.clients.confluent import commit_alone, create_topic, produce_all
from tests.support.nodes.node import Node, silent_port
from tests.support.waiting import PATIENCE_S, eventually, eventually_async

COUNT = 40


@pytest.fixture(scope="module")
def bootstrap(node: Node) -> Iterator[str]:
    create_topic(node.bootstrap, "orders", 2)
    records = [(b"k%d" % at, json.dumps({"id": at}).encode()) for at in range(COUNT)]
    produce_all(node.bootstrap, "orders", records)
    commit_alone(node.bootstrap, "readers", {("orders", 0): 1})
    yield node.bootstrap


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Cluster]:
    async with Cluster(RealNetwork(), RealClock(), parse_bootstrap(bootstrap)) as cluster:
        yield cluster


async def test_two_looks_give_rates(bootstrap: str) -> None:
    async with connected(bootstrap) as cluster:
        before = await take_snapshot(cluster, number=1)
        produce_all(bootstrap, "orders", [(b"k", b"x" * 100)] * 10)
        commit_alone(bootstrap, "readers", {("orders", 0): 3})
        now = await take_snapshot(cluster, number=2)
    assert not before.problems
    assert now.quorum is not None
    topics = topic_rows(before, now)
    row = topics["orders"]
    assert (row.partitions, row.replicas, row.out_of_sync, row.offline, row.groups) == (2, 1, 0, 0, 1)
    assert row.bytes > 1000
    apart_s = now.at_s - before.at_s
    assert row.records_s is not None
    assert round(row.records_s * apart_s) == 10
    assert topic_rows(None, now)["orders"].records_s is None
    (broker,) = broker_rows(now).values()
    assert broker.state == "serves"
    assert broker.leaders == broker.replicas == sum(len(topic.partitions) for topic in now.topics.values())
    assert 0 < broker.disk_usable < broker.disk_total
    group = group_rows(before, now)["readers"]
    assert group.records_s is not None
    assert round(group.records_s * apart_s) == 2
    assert group.lag == now.ends["orders", 0] - 3
    assert point_of(topics, now).lag == {"readers": group.lag}


async def test_a_watch_finds_what_is_wrong(bootstrap: str) -> None:
    (config,) = single_cluster(bootstrap, {}, may_change=False).values()
    watch = Watch(config, every_s=0.1, findings_apart_s=0.0)
    async with running(watch):
        await eventually_async(lambda: any(each.check == "few-voters" for each in watch.view.findings))
        await eventually_async(lambda: len(watch.view.points) > 2)
        assert await watch.do(lambda cluster: cluster.topic("orders"))
        watch.refresh_soon()
    assert watch.view.error == ""


async def test_a_cluster_that_is_down_is_an_error_in_words() -> None:
    with silent_port() as port:
        watch = Watch(ClusterConfig("down", f"127.0.0.1:{port}"), every_s=0.1)
        async with running(watch):
            await eventually_async(lambda: watch.view.error)
        assert watch.view.error == f"cannot connect to 127.0.0.1:{port}: connection refused"
        bad = Watch(ClusterConfig("bad", f"127.0.0.1:{port}", {"security.protocol": "NONE"}), every_s=0.1)
        async with running(bad):
            await eventually_async(lambda: bad.view.error)
        assert bad.view.error.startswith("security.protocol=NONE is unknown")


@contextlib.asynccontextmanager
async def running(watch: Watch) -> AsyncIterator[None]:

    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)


async def test_pipelines_write_how_far_they_are(node: Node) -> None:
    def status(name: str, rows: int) -> dict[str, Any]:
        flow = {"flow": "visits", "target": "visits", "status": "running", "rows_read": rows, "lag": 0, "error": ""}
        return {
            "pipeline": name,
            "mode": "continuous",
            "state": "running",
            "started": 1.0,
            "updated": 2.0,
            "flows": [flow],
        }

    said: list[str] = []
    reader = ProgressReader()
    async with connected(node.bootstrap) as cluster:
        assert await reader.read(cluster) == {}, "nothing is written yet"
        for rows in (1, 2):
            with StatusWriter(node.bootstrap, {}, said.append, every_s=0.01) as published:
                published.put(status("shop", rows - 1))
                published.put(status("shop", rows))
            found = await reader.read(cluster)
            assert [flow["rows_read"] for flow in found["shop"]["flows"]] == [rows], (
                "the last word is written at the end"
            )
        await write_progress(cluster, status("other", 7))
        await produce_record(cluster, PROGRESS, Record(b"x", b"no status", (), 0))
        assert sorted(await reader.read(cluster)) == sorted(await ProgressReader().read(cluster)) == ["other", "shop"]
        (topic,) = await describe_configs(cluster, ResourceType.TOPIC, [PROGRESS])
        assert {each.name: each.value for each in topic.configs}["cleanup.policy"] == "compact"
        await delete_topic(cluster, PROGRESS)
        await eventually_async(lambda: reads(cluster, reader, {}))
        await write_progress(cluster, status("again", 1))
        assert list(await reader.read(cluster)) == ["again"]
    assert said == []


async def test_progress_is_read_from_the_beginning_a_part_at_a_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction leaves few records, however far apart their offsets are; and a topic that was made again is new."""
    monkeypatch.setattr(pipeline_progress, "MAX_RECORDS", 2)
    monkeypatch.setattr(pipeline_progress, "FETCH_BYTES", 1)  # one batch at a time
    status = {"mode": "triggered", "state": "failed", "started": 1.0, "updated": 2.0, "error": "", "flows": []}
    reader = ProgressReader()
    async with connected(node.bootstrap) as cluster:
        with contextlib.suppress(ApiError):
            await delete_topic(cluster, PROGRESS)
        await eventually_async(lambda: reads(cluster, reader, {}))
        for name in "abc":
            await write_progress(cluster, {**status, "pipeline": name})
        assert [list(await reader.read(cluster)) for _ in range(2)] == [["a", "b"], ["a", "b", "c"]]
        await delete_topic(cluster, PROGRESS)
        await eventually_async(lambda: reads(cluster, ProgressReader(), {}))
        for name in "defgh":
            await write_progress(cluster, {**status, "pipeline": name})
        assert list(await reader.read(cluster)) == ["d", "e"]


async def reads(cluster: Cluster, reader: ProgressReader, expected: object) -> bool:
    return await reader.read(cluster) == expected


def test_a_cluster_that_takes_no_progress_is_said_once() -> None:
    said: list[str] = []
    with (
        silent_port() as port,
        StatusWriter(f"127.0.0.1:{port}", {}, said.append, every_s=0.01, closes_within_s=0.1) as published,
    ):
        published.put({"pipeline": "shop", "updated": 1.0})
        eventually(lambda: said, "it is said")
        published.put({"pipeline": "shop", "updated": 2.0})
    assert len(said) == 1
    assert said[0].startswith("progress is not written to _odradek_pipelines: cannot connect")
    with pytest.raises(PipelineError, match=r"--progress-to 127\.0\.0\.1:1: security\.protocol=NONE is unknown"):
        StatusWriter("127.0.0.1:1", {"security.protocol": "NONE"}, said.append)


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, "late"), 3),
        (UnreachableError("away"), 3),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"), 1),
    ],
)
def test_the_last_status_is_tried_again(error: OdradekError, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    async def write(_: Cluster, status: Any) -> None:
        tried.append(status["state"])
        if len(tried) < 3:
            raise error

    monkeypatch.setattr(publishing, "write_progress", write)
    monkeypatch.setattr(publishing, "TRIES_AGAIN_S", 0.01)
    said: list[str] = []
    with StatusWriter("127.0.0.1:1", {}, said.append, every_s=1000.0, closes_within_s=PATIENCE_S) as published:
        published.put({"pipeline": "shop", "updated": 1.0, "state": "finished"})
    assert tried == ["finished"] * times
    assert len(said) == 1


async def test_records_from_the_end_the_beginning_an_offset_and_a_time(node: Node) -> None:
    create_topic(node.bootstrap, "kinds", 2)
    sent = produce_all(node.bootstrap, "kinds", [(b"k%d" % at, b"v%d" % at) for at in range(30)])
    async with connected(node.bootstrap) as cluster:
        newest = await browse(cluster, SearchQuery("kinds", rows=5))
        assert len(newest.rows) == 5
        assert [row.timestamp_ms for row in newest.rows] == sorted(
            (row.timestamp_ms for row in newest.rows), reverse=True
        )
        oldest = await browse(cluster, SearchQuery("kinds", start="beginning", rows=500))
        assert {row.value for row in oldest.rows} == {f"v{at}" for at in range(30)}
        assert oldest.looked_at == 30
        one = await browse(cluster, SearchQuery("kinds", partitions=[1], start="offset", at=2, rows=3))
        assert [(row.partition, row.offset) for row in one.rows] == [(1, 2), (1, 3), (1, 4)]
        moment = sent[-1].timestamp()[1]
        late = await browse(cluster, SearchQuery("kinds", start="time", at=moment, rows=500))
        assert all(row.timestamp_ms >= moment for row in late.rows)
        assert "v29" in {row.value for row in late.rows}
        with pytest.raises(BrowseError, match="topic kinds has no partition 7; it has 2"):
            await browse(cluster, SearchQuery("kinds", partitions=[7]))
        with pytest.raises(ApiError, match="topic none"):
            await browse(cluster, SearchQuery("none"))
        produce_all(node.bootstrap, "kinds", [(b"new", b"new")])
        assert [row.value for row in (await follow(cluster, SearchQuery("kinds"), newest.next_offsets)).rows] == ["new"]


async def test_a_live_tail_begins_at_the_end_wherever_the_form_begins(node: Node) -> None:
    create_topic(node.bootstrap, "tail", 2)
    produce_all(node.bootstrap, "tail", [(b"k%d" % at, b"old%d" % at) for at in range(30)])
    query = SearchQuery("tail", start="beginning", rows=2)
    async with connected(node.bootstrap) as cluster:
        offsets = await begin_following(cluster, query)
        assert (await follow(cluster, query, offsets)).rows == []
        produce_all(node.bootstrap, "tail", [(b"k", b"new%d" % at) for at in range(3)])
        found = await follow(cluster, query, offsets)
        assert [row.value for row in found.rows] == ["new2", "new1"]
        assert (await follow(cluster, query, found.next_offsets)).rows == []


async def test_a_search_in_keys_values_and_headers_ends_at_its_bounds(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(node.bootstrap, "search", 1)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for at in range(100):
        producer.produce(
            "search", key=b"Key-%d" % at, value=b"\xff%d" % at, headers={"trace": b"id-%d" % at, "none": None}
        )
        if at % 10 == 9:
            assert producer.flush(PATIENCE_S) == 0
    async with connected(node.bootstrap) as cluster:
        for search in (Search(key="key-42"), Search(header="trace=id-42"), Search(value="42", key="KEY")):
            found = await browse(cluster, SearchQuery("search", search=search))
            assert [row.offset for row in found.rows] == [42]
            assert (found.looked_at, found.ended) == (100, "")
        assert (await browse(cluster, SearchQuery("search", search=Search(value="none of them")))).rows == []
        monkeypatch.setattr(browsing, "MAX_RECORDS", 10)
        monkeypatch.setattr(browsing, "FETCH_BYTES", 1)
        found = await browse(cluster, SearchQuery("search", search=Search(key="key-42"), start="beginning"))
        assert found.ended == f"after {found.looked_at} records"
        record = await read_one(cluster, "search", 0, 42)
        assert record.headers == (("trace", b"id-42"), ("none", None))
        with pytest.raises(BrowseError, match="search-0 has no record with offset 100"):
            await read_one(cluster, "search", 0, 100)


async def test_open_and_aborted_transactions_are_left_out_where_that_is_asked(node: Node) -> None:
    create_topic(node.bootstrap, "transactions", 1)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "console"})
    producer.init_transactions(PATIENCE_S)
    for end, value in ((producer.commit_transaction, b"kept"), (producer.abort_transaction, b"aborted")):
        producer.begin_transaction()
        producer.produce("transactions", value=value)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("transactions", value=b"open")
    producer.flush(PATIENCE_S)
    try:
        async with connected(node.bootstrap) as cluster:
            committed = await browse(cluster, SearchQuery("transactions", start="beginning"))
            every = await browse(cluster, SearchQuery("transactions", start="beginning", committed=False))
            fetched = await fetch_records(cluster, ("transactions", 0), 0, max_bytes=1 << 20, max_batch_bytes=1 << 20)
    finally:
        producer.abort_transaction(PATIENCE_S)
    assert [row.value for row in committed.rows] == ["kept"]
    assert [row.value for row in every.rows] == ["kept", "aborted", "open"]
    assert fetched.next_offset == 4


async def test_a_read_that_begins_at_an_abort_marker_has_what_follows(node: Node) -> None:
    """Brokers name the aborted transaction that ends there, of which no record is left to be read."""
    create_topic(node.bootstrap, "markers", 1)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "markers"})
    producer.init_transactions(PATIENCE_S)
    for end, value in (
        (producer.abort_transaction, b"aborted"),
        (producer.commit_transaction, b"one"),
        (producer.commit_transaction, b"two"),
    ):
        producer.begin_transaction()
        producer.produce("markers", value=value)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    async with connected(node.bootstrap) as cluster:
        for offset in (0, 1):
            fetched = await fetch_records(cluster, ("markers", 0), offset, max_bytes=1 << 20, max_batch_bytes=1 << 20)
            assert [record.value for record in fetched.records] == [b"one", b"two"]


async def test_a_record_is_written_where_its_key_belongs(node: Node) -> None:
    create_topic(node.bootstrap, "written", 5)
    keys = [b"k" * length for length in range(1, 12)] + [b"\xff\x80", b""]
    sent = produce_all(node.bootstrap, "written", [(key, b"") for key in keys], partitioner="murmur2")
    expected = {message.key(): message.partition() for message in sent}
    async with connected(node.bootstrap) as cluster:
        for key in keys:
            record = Record(key, b"here", (("h", b"1"),), 1000)
            partition, offset = await produce_record(cluster, "written", record)
            assert partition == expected[key]
        read = await read_one(cluster, "written", partition, offset)
        assert (read.key, read.value, read.headers, read.timestamp_ms) == (b"", b"here", (("h", b"1"),), 1000)
        assert await produce_record(cluster, "written", Record(None, b"", (), 0)) == (
            0,
            sum(expected[key] == 0 for key in keys) * 2,
        )
        with pytest.raises(ApiError, match="topic written has no partition 9"):
            await produce_record(cluster, "written", Record(None, b"", (), 0), partition=9)


async def test_a_large_record_is_cut_and_one_that_is_too_large_is_said(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(node.bootstrap, "large", 1, max_message_bytes=20_000_000)
    produce_all(
        node.bootstrap, "large", [(b"k", b"x" * 8_000_000)], message_max_bytes=10_000_000, compression_type="gzip"
    )
    async with connected(node.bootstrap) as cluster:
        found = await browse(cluster, SearchQuery("large"))
        assert [row.size for row in found.rows] == [8_000_001]
        assert len(found.rows[0].value) < 300
        monkeypatch.setattr(browsing, "MAX_BATCH_BYTES", 1_000_000)
        found = await browse(cluster, SearchQuery("large"))
        assert found.rows == []
        assert len(found.notes) == 1
        assert found.notes[0].startswith("partition 0, offset 0: ")
        with pytest.raises(BrowseError, match="large-0, offset 0 cannot be read"):
            await read_one(cluster, "large", 0, 0)
