"""What every exactly-once sink into a table promises: each batch once, whatever dies and whoever else writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_odradek.errors import FencedError, OptionError, StagingError
from pyspark_odradek.task import Task
from tests.spark import dying_source
from tests.spark.queries import load_stream, numbered
from tests.spark.stores import ROWS, DeltaStore, IcebergStore, PostgresStore, Store, commit, ids, left, writer
from tests.spark.test_exact_sink import forget_commit
from tests.support.clients import create_topic
from tests.support.postgres import Postgres

_tables = itertools.count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')
    with Postgres() as server:
        yield server


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """One that no other test has, of the kind that is asked for."""
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("postgres"), f"rows_{next(_tables)}")
    return DeltaStore(tmp_path) if request.param == "delta" else IcebergStore(tmp_path)


ALL = pytest.mark.parametrize("store", ["delta", "iceberg", "postgres"], indirect=True)
OF_FILES = pytest.mark.parametrize("store", ["delta", "iceberg"], indirect=True)


@ALL
def test_a_batch_is_taken_once(store: Store) -> None:
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


@OF_FILES
def test_two_drivers_that_commit_at_the_same_moment(store: Store) -> None:
    """The other one commits the same batch between our look at the table and our commit."""
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
def test_commits_of_others_between_cost_a_second_look(store: Store) -> None:
    made = writer(store)
    commit(made, 0, range(10))
    look = made.table
    looks = 0

    def table() -> Any:
        nonlocal looks
        found = look()
        looks += 1
        if looks < 4:
            store.by_another(100 + looks)
        return found

    made.table = table
    assert commit(made, 1, range(10, 20))
    assert (looks, ids(store)) == (4, [*range(20), 101, 102, 103])


@OF_FILES
def test_columns_that_do_not_fit_are_told(store: Store) -> None:
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
def test_options_that_make_no_sense(store: Store, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, **options)


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


@OF_FILES
def test_a_full_disk_is_told_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    """The folder of the files is a file: what a task cannot write is one sentence, and nothing is in the table."""
    made = writer(store)
    task = Task("query", "run", 0, 0, 0)
    if isinstance(store, DeltaStore):
        Path(store.path).write_text("")
    else:
        Path(made.location.removeprefix("file://")).write_text("")
    with pytest.raises(StagingError, match=r"a task cannot write to .* nothing of this batch is in the table"):
        left(made, task, [(1, "a")])


@pytest.mark.parametrize(
    "store",
    ["delta", pytest.param("iceberg", marks=pytest.mark.slow), pytest.param("postgres", marks=pytest.mark.slow)],
    indirect=True,
)
def test_a_stream_through_deaths(spark: Any, odradek: str, topic: str, store: Store, tmp_path: Path) -> None:
    """Killed before and after the commit, and run again after a lost note of Spark's: every row is there once."""
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
                query.awaitTermination(150)
        else:
            assert query.awaitTermination(150)
        if deaths == 2:
            forget_commit(tmp_path)
    assert plan.read_text() == ""
    found = store.rows("id, at")
    assert [row[0] for row in found] == list(range(400))
    assert {row[1].utcoffset().total_seconds() for row in found} == {0.0}
