"""The sinks that merge rows by key: each batch is merged once, after crashes and beside other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.schema import Field, PrimitiveType, Schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pyspark_odradek.errors import ClusterError, FencedError, OptionError, StagingError
from pyspark_odradek.micro_batch.task import Task
from tests.spark import dying_source
from tests.spark.queries import load_stream
from tests.spark.stores import ROWS, DeltaStore, IcebergStore, PostgresStore, Store, commits_between, left, writer
from tests.spark.test_exact_sink import remove_commit
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.disks.file_system import small_tmpfs

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
GOES = StructType([ROWS["id"], StructField("goes", BooleanType()), ROWS["name"]])
BY_KEY = {"keyColumns": "id", "deleteColumn": "goes"}


OF_POSTGRES = pytest.mark.parametrize("store", ["postgres"], indirect=True)
BOTH = pytest.mark.parametrize("store", ["delta", "postgres"], indirect=True)
Rows = list[tuple[Any, ...]]


def merged(made: Any, batch_id: int, *tasks: Rows, query: str = "query") -> bool:
    """Commit a batch as the driver does, from the rows of each task."""
    ours = [Task(query, "run", batch_id, number, number) for number in range(len(tasks))]
    found = [left(made, task, rows) for task, rows in zip(ours, tasks, strict=True)]
    return bool(made.commit_once(ours[0], list(reversed(found))))


def batches(path: str) -> list[tuple[str, int]]:
    """The marker of each commit of a table, in order."""
    found = []
    for file in sorted(Path(path, "_delta_log").glob("*.json")):
        actions = map(json.loads, file.read_text().splitlines())
        txns = [action["txn"] for action in actions if "txn" in action]
        found += [(txn["appId"], txn["version"]) for txn in txns if not txn["appId"].endswith(".plan")]
    return found


def stray_files(path: str) -> set[str]:
    """The Parquet files of a table that none of its versions names."""
    table = DeltaTable(path)
    there = {file.name for file in Path(path).glob("*.parquet")}
    for version in range(table.version() + 1):
        table.load_as_version(version)
        there -= {Path(uri).name for uri in table.file_uris()}
    return there


@BOTH
def test_rows_are_replaced_and_deleted_by_key(store: Store) -> None:
    """The last row of a key counts, and a null in the column of deletes deletes nothing."""
    made = writer(store, GOES, **BY_KEY)
    assert merged(made, 0, [(1, None, "a"), (2, False, "b"), (3, False, "c"), (1, False, "d"), (4, True, None)])
    assert store.rows() == [(1, "d"), (2, "b"), (3, "c")]
    first = [(1, True, None), (2, True, None), (2, False, "again"), (5, False, "early")]
    assert merged(made, 1, first, [(3, False, None), (4, None, "e"), (5, False, "late")])
    assert store.rows() == [(2, "again"), (3, None), (4, "e"), (5, "late")]
    assert merged(made, 2, [(number, True, None) for number in range(10)])
    assert store.rows() == []


@BOTH
def test_a_batch_is_merged_once(store: Store) -> None:
    """A batch that runs again does not undo later changes."""
    made = writer(store, GOES, **BY_KEY)
    assert merged(made, 0, [(1, False, "a"), (2, False, "b")])
    assert merged(made, 0, [(1, True, None)], query="another")
    assert not merged(made, 0, [(1, False, "a"), (2, False, "b")]), "as Spark does after a crash"
    assert store.rows() == [(2, "b")]
    assert merged(writer(store, GOES, **BY_KEY), 1, [(7, True, None)]), "nothing to change, and yet its number is kept"
    assert merged(made, 0, [(7, False, "g")], query="a third")
    assert not merged(made, 1, [(7, True, None)])
    assert store.rows() == [(2, "b"), (7, "g")]
    with pytest.raises(FencedError, match="has batch 1 of this query already, and this driver is at batch 0"):
        merged(made, 0, [(2, True, None)])
    if isinstance(store, DeltaStore):
        assert batches(store.path) == [("query", 0), ("another", 0), ("query", 1), ("a third", 0)]


@BOTH
def test_keys_of_several_columns_and_nothing_else(store: Store) -> None:
    made = writer(store, GOES, keyColumns="id, name", deleteColumn="goes")
    assert merged(made, 0, [(1, False, "a"), (1, False, "b"), (1, False, "a")])
    assert merged(made, 1, [(1, True, "a"), (2, False, "a"), (1, False, "b")])
    assert store.rows() == [(1, "b"), (2, "a")]


@BOTH
def test_without_a_column_of_deletes_rows_are_replaced(store: Store) -> None:
    made = writer(store, keyColumns="id")
    assert merged(made, 0, [(1, "a"), (2, "b"), (1, "c")])
    assert merged(made, 1, [(2, "d"), (3, None)])
    assert store.rows() == [(1, "c"), (2, "d"), (3, None)]


@BOTH
def test_a_key_that_is_null_is_refused(store: Store) -> None:
    made = writer(store, GOES, **BY_KEY)
    assert merged(made, 0, [(1, False, "a")])
    with pytest.raises(ClusterError, match=r"batch 1 was refused: rows of it .*have no id, which keyColumns names"):
        merged(made, 1, [(2, False, "b"), (None, True, None)])
    assert merged(made, 1, [(2, False, "b")])
    assert store.rows() == [(1, "a"), (2, "b")]


@BOTH
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keyColumns": "nr", "deleteColumn": "goes"}, "keyColumns names nr, which no column is called"),
        ({"keyColumns": "id", "deleteColumn": "went"}, "deleteColumn names went, which no column is called"),
        ({"keyColumns": "id", "deleteColumn": "name"}, "deleteColumn names name, which is string: it takes a boolean"),
        ({"keyColumns": "id", "deleteColumn": "goes,id"}, "deleteColumn is the name of one boolean column"),
        ({"keyColumns": "id", "deleteColumn": ""}, "deleteColumn is the name of one boolean column"),
        ({"keyColumns": "id,goes", "deleteColumn": "goes"}, "deleteColumn names goes, which is among keyColumns too"),
        ({"keyColumns": " "}, "keyColumns names no column: name those that identify rows"),
        ({"deleteColumn": "goes"}, "deleteColumn needs keyColumns, by which the row to delete is found"),
        ({"keyColumns": "id", "deleteColumns": "goes"}, "did you mean 'deleteColumn'"),
    ],
)
def test_invalid_options(store: Store, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, GOES, **options)


@pytest.mark.parametrize("option", ["keyColumns", "deleteColumn"])
def test_iceberg_only_appends(tmp_path: Path, option: str) -> None:
    with pytest.raises(OptionError, match=f"{option} is for sink=delta and sink=postgres: the Iceberg sink only appen"):
        writer(IcebergStore(tmp_path), GOES, **{option: "id"})


@OF_POSTGRES
def test_a_delete_frees_a_unique_value_for_another_key(store: PostgresStore) -> None:
    """A row gets another key: both changes are in one batch, and a second column is unique, too."""
    store.query(f"CREATE TABLE {store.table} (id bigint PRIMARY KEY, name text NOT NULL UNIQUE)")
    made = writer(store, GOES, **BY_KEY)
    assert merged(made, 0, [(2, False, "a")])
    assert merged(made, 1, [(1, False, "a"), (2, True, None)])
    assert store.rows() == [(1, "a")]


@OF_POSTGRES
def test_larger_batches_of_postgres_are_staged_in_tables(store: PostgresStore) -> None:
    made = writer(store, GOES, **BY_KEY)
    assert merged(made, 0, [(number, False, "x" * 100) for number in range(2000)])
    assert merged(made, 1, [(number, True, "x" * 100) for number in range(1, 2000)], [(2000, False, "y")])
    assert store.rows() == [(0, "x" * 100), (2000, "y")]


# Delta alone: its driver does what PostgreSQL's server does.


def test_staged_rows_are_removed(store: DeltaStore, caplog: pytest.LogCaptureFixture) -> None:
    made = writer(store, GOES, **BY_KEY)
    merged(made, 0, [(1, False, "a")], [(2, False, "b")])
    merged(made, 0, [(1, False, "a")])
    assert stray_files(store.path) == set()
    found = left(made, Task("query", "run", 1, 0, 0), [(3, False, "c")])
    made._remove(found.files * 2)
    assert "whose rows are in" in caplog.text and "could not be removed" in caplog.text


def test_files_of_a_merge_have_the_compression_of_the_option(store: DeltaStore) -> None:
    for batch_id, codec in enumerate(["zstd", "lz4", "gzip", "none", "snappy"]):
        assert merged(writer(store, GOES, compression=codec, **BY_KEY), batch_id, [(1, False, codec)])
        (file,) = DeltaTable(store.path).file_uris()
        written = pq.ParquetFile(file).metadata.row_group(0).column(0).compression
        assert written.lower() == {"none": "uncompressed"}.get(codec, codec)


def test_two_drivers_that_merge_at_the_same_moment(store: DeltaStore) -> None:
    """The other one commits the same batch after our driver has read the table and before its merge."""
    made, other = writer(store, GOES, **BY_KEY), writer(store, GOES, **BY_KEY)
    merged(made, 0, [(1, False, "a")])
    look = made.table
    looked: list[Any] = []

    def table() -> Any:
        found = look()
        if not looked:
            looked.append(found)
            assert merged(other, 1, [(1, False, "theirs"), (2, True, None)])
        return found

    made.table = table
    assert not merged(made, 1, [(1, False, "ours"), (2, True, None)])
    assert store.rows() == [(1, "theirs")]
    assert batches(store.path) == [("query", 0), ("query", 1)]


@pytest.mark.parametrize("changes", [True, False], ids=["changes", "nothing to change"])
def test_conflicting_commits_are_followed_by_a_retry(store: DeltaStore, changes: bool) -> None:
    """The next attempt of the merge reads rows that were committed in between."""
    made = writer(store, GOES, **BY_KEY)
    merged(made, 0, [(1, False, "a")])
    looks = commits_between(made, store)
    assert merged(made, 1, [(102, True, None), (103, False, "ours"), (1, False, "b")] if changes else [(9, True, None)])
    assert len(looks) == 4
    if changes:
        assert store.rows() == [(1, "b"), (101, "x"), (103, "ours")]
    assert batches(store.path) == [("query", 0), ("query", 1)]


def test_partitions(store: DeltaStore) -> None:
    """Rows move between partitions if the partition column is not part of the key."""
    schema = StructType([*GOES, StructField("day", StringType())])
    options = BY_KEY | {"partitionColumns": "day"}
    made = writer(store, schema, **options)
    rows = [(number, False, f"n{number}", f"day {number % 3}") for number in range(30)]
    assert merged(made, 0, rows[:20], rows[20:])
    assert merged(made, 1, [(1, False, "moved", "day 2"), (2, True, None, None), (3, False, None, None)])
    there = {row[0]: row for row in store.rows("id, name, day")}
    assert (there[1], there[3]) == ((1, "moved", "day 2"), (3, None, None))
    assert sorted(there) == [number for number in range(30) if number != 2]
    assert {each["day"] for each in DeltaTable(store.path).partitions()} == {"day 0", "day 1", "day 2", None}
    with pytest.raises(OptionError, match="partitionColumns names goes, the deleteColumn, which is not written"):
        writer(store, schema, **BY_KEY, partitionColumns="goes")
    with pytest.raises(OptionError, match="is partitioned by day: set partitionColumns"):
        writer(store, schema, **BY_KEY).table()


def test_a_partition_that_is_part_of_the_key(store: DeltaStore) -> None:
    made = writer(store, GOES, keyColumns="id,name", deleteColumn="goes", partitionColumns="name")
    assert merged(made, 0, [(1, False, "a"), (1, False, "b"), (2, False, "b")])
    assert merged(made, 1, [(1, False, "a"), (2, True, "b"), (3, False, "it's")])
    assert sorted(store.rows()) == [(1, "a"), (1, "b"), (3, "it's")]
    with pytest.raises(ClusterError, match="have no name, which keyColumns names"):
        merged(made, 2, [(4, False, "")])


KEYS = (
    "1L id, true b, 2S s, 3 i, 'x' x, X'00FF' r, DATE'2024-01-02' a, 1.25BD n, -5Y y, "
    "TIMESTAMP'2024-01-02 03:04:05.000006' at, TIMESTAMP_NTZ'2024-01-02 03:04:05.999999' nt"
)


@pytest.mark.parametrize("divided", ["", "a,b,s,at,nt,y"], ids=["whole", "divided"])
def test_keys_of_every_type_are_matched(spark: Any, store: DeltaStore, divided: str) -> None:
    frame = spark.sql(f"SELECT {KEYS}, false goes, array(1, 2) xs, named_struct('k', 'v') st")
    keys = [name for name in frame.columns if name not in ("goes", "xs", "st")]
    options = {"keyColumns": ",".join(keys), "deleteColumn": "goes", "partitionColumns": divided}
    rows = frame.toArrow()
    made = writer(store, frame.schema, **{name: value for name, value in options.items() if value})
    for batch_id, goes in enumerate([False, False, True]):
        task = Task("query", "run", batch_id, 0, 0)
        made.task = lambda task=task: task
        at = rows.column_names.index("goes")
        batch = rows.set_column(at, rows.field(at), pa.array([goes])).to_batches()
        assert made.commit_once(task, [made.write(iter(batch))])
        names = [name for name in rows.column_names if name != "goes"]
        expected = [] if goes else [tuple(rows.to_pylist()[0][name] for name in names)]
        assert store.rows(", ".join(names)) == expected


@pytest.mark.parametrize("name", ["Id", "order", "a b", "a.b", "ä", 'a"b', "it's", "1", "source"])
def test_any_names_of_columns(store: DeltaStore, name: str) -> None:
    schema = StructType(
        [StructField("nr", LongType()), StructField(name, LongType()), StructField("Goes", BooleanType())]
    )
    made = writer(store, schema, keyColumns=f"nr,{name}", deleteColumn="Goes")
    assert merged(made, 0, [(1, 1, False), (1, 2, False)])
    assert merged(made, 1, [(1, 1, True), (2, 3, False)])
    assert store.rows(f"nr, {name}") == [(1, 2), (2, 3)]


@pytest.mark.parametrize("kind", ["DOUBLE(1)", "FLOAT(1)", "array(1)", "named_struct('a', 1)"])
def test_types_that_cannot_be_a_key(spark: Any, store: DeltaStore, kind: str) -> None:
    schema = spark.sql(f"SELECT {kind} k, 1 v").schema
    with pytest.raises(OptionError, match=r"keyColumns names k, which is .*: its values do not identify rows; cast it"):
        writer(store, schema, keyColumns="k")


def test_mismatched_and_new_columns(store: DeltaStore) -> None:
    merged(writer(store, GOES, **BY_KEY), 0, [(1, False, "a"), (2, False, "b")])
    other = StructType([StructField("id", StringType()), GOES["goes"], GOES["name"]])
    with pytest.raises(OptionError, match=r"do not fit the table .*id is .*long.* there, .*string.* here"):
        writer(store, other, **BY_KEY).table()
    wider = StructType([*GOES, StructField("more", LongType())])
    with pytest.raises(OptionError, match="has no column more: set mergeSchema=true"):
        writer(store, wider, **BY_KEY).table()
    made = writer(store, wider, mergeSchema="true", **BY_KEY)
    assert merged(made, 1, [(2, False, "c", 5), (3, False, "d", 6), (1, None, "a", None)])
    assert store.rows("id, name, more") == [(1, "a", None), (2, "c", 5), (3, "d", 6)]
    assert merged(writer(store, GOES, **BY_KEY), 2, [(2, False, "e"), (4, False, "f")])
    assert store.rows("id, name, more") == [(1, "a", None), (2, "e", 5), (3, "d", 6), (4, "f", None)]
    assert "goes" not in [field.name for field in DeltaTable(store.path).schema().fields]


def test_a_column_without_nulls(store: DeltaStore) -> None:
    """A deleted row needs only its key."""
    DeltaTable.create(store.path, Schema([Field("id", LONG, nullable=False), Field("name", STRING, nullable=False)]))
    made = writer(store, GOES, **BY_KEY)
    assert merged(made, 0, [(1, False, "a"), (2, False, "b")])
    with pytest.raises(
        ClusterError, match=r"batch 1 was refused: rows of it have no name, which the table .* requires"
    ):
        merged(made, 1, [(1, False, None)])
    assert merged(made, 1, [(1, True, None), (2, False, None), (2, False, "c")])
    assert store.rows() == [(2, "c")]


def with_setting(name: str, value: str = "true") -> Callable[[str], Any]:
    schema = Schema([Field("id", "long"), Field("name", "string")])  # type: ignore[arg-type]  # it takes the name of a type
    return lambda path: DeltaTable.create(path, schema, configuration={name: value})


def with_deletion_vectors(path: str) -> None:
    made = DeltaTable.create(path, Schema([Field("id", "long"), Field("name", "string")]))  # type: ignore[arg-type]  # it takes the name of a type
    made.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (with_setting("delta.appendOnly"), "has appendOnly, which a merge by keyColumns does not keep: take another"),
        (with_setting("delta.enableChangeDataFeed"), "has changeDataFeed, which a merge by keyColumns does not keep"),
        (with_deletion_vectors, "has deletionVectors, which a merge by keyColumns does not keep"),
    ],
)
def test_columns_that_a_merge_would_break_are_refused(store: DeltaStore, make: Callable[[str], Any], says: str) -> None:
    make(store.path)
    made = writer(store, GOES, **BY_KEY)
    with pytest.raises(OptionError, match=says):
        merged(made, 0, [(1, False, "a")])
    assert DeltaTable(store.path).history(1)[0]["operation"] != "MERGE"
    task = Task("query", "run", 0, 0, 0)
    assert writer(store).commit_once(task, [left(writer(store), task, [(1, "a")])]), "rows are added all the same"


def test_files_that_the_driver_cannot_read(store: DeltaStore) -> None:
    made = writer(store, GOES, **BY_KEY)
    task = Task("query", "run", 0, 0, 0)
    found = left(made, task, [(1, False, "a")])
    (file,) = Path(store.path).glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(bytes(len(whole)))
    with pytest.raises(
        StagingError, match=r"the driver cannot read what a task wrote to .* Nothing of this batch is in"
    ):
        made.commit_once(task, [found])
    file.write_bytes(whole)
    assert made.commit_once(task, [found])
    assert store.rows() == [(1, "a")]


def test_a_disk_that_is_full_when_rows_are_merged(tmp_path: Path) -> None:
    """The disk has room for the staged rows but not for the merged ones: one sentence, and no row is in the table."""
    with small_tmpfs(tmp_path / "disk", 1 << 20):
        store = DeltaStore(tmp_path / "disk")
        made = writer(store, GOES, compression="none", **BY_KEY)
        rows = [(number, False, f"{number} " * 60) for number in range(2000)]
        assert merged(made, 0, [(1, False, "a")])
        with pytest.raises(ClusterError, match=r"batch 1 was refused by .*No space left"):
            merged(made, 1, rows)
        assert store.rows() == [(1, "a")]
        for file in stray_files(store.path):
            Path(store.path, file).unlink()
        assert merged(made, 1, rows[:500])
        assert len(store.rows()) == 500


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_stream_of_changes_through_crashes(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """It is killed before the commit, and between the merge and its end; and repeated after Spark's commit is lost."""
    store = DeltaStore(tmp_path)
    create_topic(odradek, topic, 2)
    spark.dataSource.register(dying_source.DyingSource)
    plan = tmp_path / "plan"
    plan.write_text("before commit_once\nafter _merge")
    expected: dict[int, str] = {}
    for deaths in range(4):
        changes = [(n, None if n % 7 == deaths else f"{deaths}") for n in range(20 * deaths, 20 * deaths + 40)]
        produce_all(odradek, topic, [(b"%d" % n, None if name is None else name.encode()) for n, name in changes])
        expected |= {n: name for n, name in changes if name is not None}
        for gone in [n for n, name in changes if name is None]:
            expected.pop(gone, None)
        stream = load_stream(spark, odradek, subscribe=topic).selectExpr(
            "BIGINT(STRING(key)) id", "value IS NULL goes", "STRING(value) name"
        )
        out = stream.writeStream.format("odradek_dying").options(**store.options, **BY_KEY, plan=str(plan))
        query = out.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        if deaths < 2:
            with pytest.raises(Exception):  # noqa: B017 - of Spark, about a worker that is gone
                query.awaitTermination(400)
        else:
            assert query.awaitTermination(400)
        if deaths == 2:
            remove_commit(tmp_path)
    assert plan.read_text() == ""
    assert dict(store.rows()) == expected
    numbers = [batch for _, batch in batches(store.path)]
    assert numbers == list(range(len(numbers))), "each batch once"
