"""Guarantees of every exactly-once sink into a table: each batch once, after crashes and beside other writers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from pyspark_odradek.errors import FencedError, OptionError, StagingError
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.table_sinks import parquet_files
from pyspark_odradek.writers import stream_writer
from tests.spark import dying_source
from tests.spark.queries import load_stream, numbered
from tests.spark.stores import (
    ROWS,
    DeltaStore,
    IcebergStore,
    PostgresStore,
    Store,
    commit,
    commits_between,
    ids,
    left,
    writer,
)
from tests.spark.test_exact_sink import remove_commit
from tests.support.clients.confluent import create_topic
from tests.support.disks.file_system import small_tmpfs

ALL = pytest.mark.parametrize("store", ["delta", "iceberg", "postgres"], indirect=True)
OF_FILES = pytest.mark.parametrize("store", ["delta", "iceberg"], indirect=True)


@ALL
def test_a_batch_is_committed_once(store: Store) -> None:
    made = writer(store)
    assert commit(made, 0, range(10))
    assert not commit(made, 0, range(10)), "as Spark does after a crash"
    assert commit(writer(store), 1, range(10, 20))
    assert not commit(writer(store), 1, range(10, 20))
    assert commit(made, 0, range(20, 30), query="another query")
    with pytest.raises(FencedError, match="has batch 1 of this query already, and this driver is at batch 0"):
        commit(made, 0, range(10))
    assert store.rows() == [(n, f"n{n % 3}") for n in range(30)]


@ALL
def test_a_checkpoint_that_was_restored_to_the_batch_before(store: Store, tmp_path: Path) -> None:
    """Spark plans the batch again with other records: it is neither skipped nor written."""
    planned = tmp_path / "checkpoint" / "offsets" / "0"
    planned.parent.mkdir(parents=True)
    planned.write_text('v1\n{"batchTimestampMs":1}\n{"in":{"0":10}}')
    made = writer(store, checkpointLocation=str(tmp_path / "checkpoint"))
    assert commit(made, 0, range(10))
    assert not commit(made, 0, range(10))
    planned.write_text('v1\n{"batchTimestampMs":2}\n{"in":{"0":15}}')
    with pytest.raises(FencedError, match="has a batch 0 of this query already, which was planned otherwise"):
        commit(made, 0, range(15))
    assert not commit(writer(store), 0, range(10)), "who cannot read the checkpoint goes by the number"
    assert ids(store) == list(range(10))


@ALL
def test_a_batch_without_rows_and_one_with_a_stray_task(store: Store) -> None:
    made = writer(store)
    task = Task("query", "run", 0, 0, 0)
    made.commit([left(made, task, [])], 0)
    with pytest.raises(StagingError, match="1 of 2 tasks did not say what they wrote"):
        made.commit([left(made, task, [(1, "a")]), None], 0)
    stray = left(made, task._replace(batch_id=1), [(2, "b")])
    with pytest.raises(StagingError, match="a task staged for batch 1 where 0 is committed"):
        made.commit([left(made, task, [(1, "a")]), stray], 0)
    made.commit([left(made, task, [(1, "a"), (2, None)])], 0)
    assert store.rows() == [(1, "a"), (2, None)]


@pytest.mark.parametrize("store", ["iceberg", "postgres"], indirect=True)
def test_a_driver_is_killed_in_its_commit(store: Store) -> None:
    """kill -9 just before the commit, and just after it, before its response arrives.

    The stream through deaths does it under Spark; for these two stores it is among the slow tests.
    """
    commit(writer(store), 0, range(10))
    for batch_id, is_there in ((1, False), (2, True)):
        numbers = range(10 * batch_id, 10 * batch_id + 10)
        child = os.fork()
        if child == 0:
            try:
                dying = writer(store)
                if not is_there:
                    die_before_the_end(store)
                commit(dying, batch_id, numbers)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert commit(writer(store), batch_id, numbers) is not is_there
    assert ids(store) == list(range(30))


def die_before_the_end(store: Store) -> None:
    """Let this process die right before the next transaction ends, when all of it is sent or written."""

    def dies(*args: Any, **named: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if isinstance(store, PostgresStore):
        from pyspark_odradek.table_sinks.postgres_sink import PostgresStreamWriter

        PostgresStreamWriter._clear_up = dies  # type: ignore[method-assign]  # the test replaces it
    else:
        from pyiceberg.table import Transaction

        Transaction.commit_transaction = dies  # type: ignore[assignment, method-assign]  # the test replaces it


@OF_FILES
def test_two_drivers_that_commit_at_the_same_moment(store: Store) -> None:
    """The other one commits the same batch after our driver has read the table and before its commit."""
    made, other = writer(store), writer(store)
    commit(made, 0, range(10))
    look = made.table
    looked: list[Any] = []

    def table() -> Any:
        found = look()
        if not looked:
            looked.append(found)
            assert commit(other, 1, range(10, 20))
        return found

    made.table = table
    assert not commit(made, 1, range(10, 20))
    assert ids(store) == list(range(20))


@OF_FILES
def test_conflicting_commits_are_followed_by_a_retry(store: Store) -> None:
    made = writer(store)
    commit(made, 0, range(10))
    looks = commits_between(made, store)
    assert commit(made, 1, range(10, 20))
    assert (len(looks), ids(store)) == (4, [*range(20), 101, 102, 103])


@OF_FILES
def test_mismatched_columns_are_reported(store: Store) -> None:
    commit(writer(store), 0, range(3))
    other = StructType([StructField("id", StringType()), StructField("name", StringType())])
    with pytest.raises(OptionError, match=r"do not fit the table .*id is .*long.* there, .*string.* here"):
        writer(store, other).table()
    wider = StructType([*ROWS, StructField("more", LongType())])
    with pytest.raises(OptionError, match="has no column more: set mergeSchema=true"):
        writer(store, wider).table()
    made = writer(store, wider, mergeSchema="true")
    task = Task("query", "run", 1, 0, 0)
    assert made.commit_once(task, [left(made, task, [(3, "n", 5)])])
    assert store.rows("id, more") == [(0, None), (1, None), (2, None), (3, 5)]


@OF_FILES
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partitionColumns": "day"}, "names day, which no column is called"),
        ({"compression": "rar"}, "compression is one of"),
        ({"mergeShema": "true"}, "did you mean 'mergeSchema'"),
        ({"kafka.acks": "all"}, "have no meaning for the (Delta|Iceberg) sink"),
        ({"sink": "lake"}, "sink is one of topic, delta, iceberg, postgres"),
    ],
)
def test_invalid_options(store: Store, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, **options)  # type: ignore[arg-type]  # options by name


@pytest.mark.parametrize("name", ["groupId", "delivery", "markerTopic", "stagingLocation", "createTopic", "topic.x"])
def test_options_of_the_topic_sink_are_refused(store: Store, name: str) -> None:
    says = rf"^{name}: an option of sink=topic, which has no meaning for the \w+ sink; remove it$"
    with pytest.raises(OptionError, match=says):
        writer(store, **{name.lower(): "true"})  # type: ignore[arg-type]  # options by name


def test_a_gate_before_a_table_is_refused(store: Store) -> None:
    with pytest.raises(OptionError, match=r"^gate, groupId: .* remove it, at the query's source too: only a topic"):
        writer(store, groupId="a", gate="balances")


@ALL
def test_the_output_mode_overwrite_is_refused(store: Store) -> None:
    with pytest.raises(OptionError, match=r"sink does not overwrite; use the output mode append$"):
        stream_writer(store.options, ROWS, True)


@OF_FILES
def test_a_list_cannot_be_a_partition_column(store: Store) -> None:
    schema = StructType([*ROWS, StructField("tags", ArrayType(StringType()))])
    with pytest.raises(OptionError, match=r"partitionColumns names tags, which is array<string>: .* divides no files"):
        writer(store, schema, partitionColumns="tags")


def test_a_column_that_iceberg_requires(tmp_path: Path) -> None:
    """A nullable column is refused before a row is written; a column without nulls is accepted."""
    store = IcebergStore(tmp_path)
    from pyiceberg import types
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema

    fields = [
        types.NestedField(1, "id", types.LongType(), required=True),
        types.NestedField(2, "name", types.StringType()),
    ]
    catalog = load_catalog("default", **store.properties)
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", Schema(*fields))
    with pytest.raises(OptionError, match=r"the table shop\.orders requires id, which may be null here: use coalesce"):
        writer(store)
    made = writer(store, StructType([StructField("id", LongType(), nullable=False), ROWS["name"]]))
    task = Task("query", "run", 0, 0, 0)
    assert made.commit_once(task, [left(made, task, [(1, "a"), (2, None)])])
    assert store.rows() == [(1, "a"), (2, None)]


@OF_FILES
def test_partitions(store: Store) -> None:
    made = writer(store, partitionColumns="name")
    commit(made, 0, range(30))
    assert ids(store) == list(range(30))
    if isinstance(store, IcebergStore):
        found = store.table().scan(row_filter="name = 'n1'").plan_files()
        assert {file.file.partition[0] for file in found} == {"n1"}
    with pytest.raises(OptionError, match=r"is partitioned by .*name: set partitionColumns"):
        writer(store).table()


@OF_FILES
def test_types_and_partitions_of_them(spark: Any, store: Store) -> None:
    frame = spark.sql(
        "SELECT 1L id, true b, 2S s, 3 i, 1.5F f, 2.5D d, 'x' x, X'00FF' r, DATE'2024-01-02' a, 1.25BD n, "
        "TIMESTAMP'2024-01-02 03:04:05.000006' at, array(1, 2) xs, named_struct('k', 'v') st"
    )
    made = writer(store, frame.schema, partitionColumns="a,b,s,at")
    task = Task("query", "run", 0, 0, 0)
    made.task = lambda: task
    rows = frame.toArrow()
    assert made.commit_once(task, [made.write(iter(rows.to_batches()))])
    assert store.rows(", ".join(rows.column_names)) == [tuple(rows.to_pylist()[0].values())]


@pytest.mark.parametrize("kind", [DeltaStore, IcebergStore])
def test_a_full_disk_is_reported_and_leaves_nothing(kind: type[DeltaStore | IcebergStore], tmp_path: Path) -> None:
    """The disk has one mebibyte for two: one sentence, no file stays, and fewer rows are written."""
    with small_tmpfs(tmp_path / "disk", 1 << 20):
        store = kind(tmp_path / "disk")
        made = writer(store, compression="none")
        task = Task("query", "run", 0, 0, 0)
        rows = [(number, f"{number} " * 300) for number in range(2000)]
        with pytest.raises(StagingError, match=r"a task cannot write to .*No space left.* nothing of this batch is in"):
            left(made, task, rows)
        assert list((tmp_path / "disk").rglob("*.parquet")) == []
        assert made.commit_once(task, [left(made, task, rows[:100])])
        assert ids(store) == list(range(100))


@OF_FILES
def test_many_values_of_a_partition_in_one_task(store: Store) -> None:
    made = writer(store, partitionColumns="name")
    task = Task("query", "run", 0, 0, 0)
    rows = [(number, None if number % 50 == 7 else f"{number % 50}") for number in range(1000)]
    found = left(made, task, rows)
    assert len(found.files) == 50
    assert made.commit_once(task, [found])
    assert store.rows() == rows


def open_parquet_files() -> int:
    """The number of open Parquet files of this process; other descriptors change at any time."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it since
            count += os.readlink(f"/proc/self/fd/{name}").endswith(".parquet")
    return count


@OF_FILES
def test_more_values_of_a_partition_than_files_may_be_open(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten values come three times, and four files may be open: a value has several files, all of them in the table."""
    monkeypatch.setattr(parquet_files, "MOST_OPEN", 4)
    monkeypatch.setattr(parquet_files, "GATHERED_BYTES", 1)
    made = writer(store, partitionColumns="name")
    task = Task("query", "run", 0, 0, 0)
    made.task = lambda: task
    rows = [(number, f"{number % 10}") for number in range(60)]
    opened: list[int] = []

    def batches() -> Iterator[Any]:
        for first in range(0, 60, 20):
            numbers, names = zip(*rows[first : first + 20], strict=True)
            yield pa.record_batch([pa.array(numbers, pa.int64()), pa.array(names)], names=["id", "name"])
            opened.append(open_parquet_files())

    found = made.write(batches())
    assert max(opened) == 4
    assert open_parquet_files() == 0
    assert sum(file.rows for file in found.files) == 60 and len(found.files) == 22, "those that are open go first"
    assert {file.values["name"] for file in found.files} == {str(number) for number in range(10)}
    assert made.commit_once(task, [found])
    assert store.rows() == rows
    if isinstance(store, IcebergStore):
        assert sum(file.file.record_count for file in store.table().scan(row_filter="name = '7'").plan_files()) == 6


@OF_FILES
def test_a_task_that_fails_leaves_no_file_of_those_it_has_closed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MOST_OPEN", 4)
    monkeypatch.setattr(parquet_files, "GATHERED_BYTES", 1)
    made = writer(store, partitionColumns="name")
    made.task = lambda: Task("query", "run", 0, 0, 0)

    def batches() -> Iterator[Any]:
        yield pa.record_batch([pa.array(range(10)), pa.array([str(number) for number in range(10)])], ["id", "name"])
        assert len([*tmp_path.rglob("*.parquet")]) == 10
        raise ValueError("the rows have ended early")

    with pytest.raises(ValueError, match="the rows have ended early"):
        made.write(batches())
    assert [*tmp_path.rglob("*.parquet")] == []


LIMIT_FILES = """
import os, resource, sys
import pyarrow as pa
from pyspark_odradek.table_sinks import parquet_files
from pyspark_odradek.micro_batch.task import Task
parquet_files.MOST_OPEN = int(sys.argv[2])
schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
files = parquet_files.ParquetFiles(parquet_files.PlaceFolder(sys.argv[1]), schema, ["name"], "none")
rows = pa.record_batch([pa.array(range(300)), pa.array([str(number) for number in range(300)])], schema=schema)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
try:
    task = Task("query", "run", 0, 0, 0)
    print(len(parquet_files.write_files(task, files, iter([rows]), schema, "the lake").files))
except parquet_files.StagingError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("most", "says"),
    [
        (parquet_files.MOST_OPEN, "300"),
        (
            1000,
            r"a task cannot write to the lake: .*Too many open.*\. Raise the limit of open files \(ulimit -n\);",
        ),
    ],
)
def test_a_limit_of_open_files(tmp_path: Path, most: int, says: str) -> None:
    """A limit of two hundred is enough for any number of values; the error for a lower limit says so."""
    command = [sys.executable, "-c", LIMIT_FILES, str(tmp_path), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.match(says, done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize(
    "store",
    ["delta", pytest.param("iceberg", marks=pytest.mark.slow), pytest.param("postgres", marks=pytest.mark.slow)],
    indirect=True,
)
@pytest.mark.timeout(2400)
def test_a_stream_through_crashes(spark: Any, odradek: str, topic: str, store: Store, tmp_path: Path) -> None:
    """It is killed before and after the commit, and repeated after Spark's commit is lost: every row exists once."""
    create_topic(odradek, topic, 2)
    spark.dataSource.register(dying_source.DyingSource)
    plan = tmp_path / "plan"
    plan.write_text("before commit_once\nafter commit_once")
    for deaths in range(4):
        numbered(odradek, topic, range(100 * deaths, 100 * deaths + 100))
        stream = load_stream(spark, odradek, subscribe=topic).selectExpr("BIGINT(STRING(value)) id", "timestamp at")
        out = stream.writeStream.format("odradek_dying").options(**store.options, plan=str(plan))
        query = out.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        if deaths < 2:
            with pytest.raises(Exception):  # noqa: B017 - of Spark, about a worker that is gone
                query.awaitTermination(500)
        else:
            assert query.awaitTermination(500)
        if deaths == 2:
            remove_commit(tmp_path)
    assert plan.read_text() == ""
    found = store.rows("id, at")
    assert [row[0] for row in found] == list(range(400))
    assert {row[1].utcoffset().total_seconds() for row in found} == {0.0}
