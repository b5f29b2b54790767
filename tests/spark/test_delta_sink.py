"""The Delta sink and tables with features that it does not write: each is refused, and stays intact."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, Schema
from pyspark.sql.types import (
    BinaryType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_odradek.errors import ClusterError, OptionError, StagingError
from pyspark_odradek.micro_batch.task import Task
from tests.spark.stores import ROWS, DeltaStore, left, writer
from tests.support.sleeps import without_sleep

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
TASK = Task("query", "run", 0, 0, 0)


@pytest.fixture
def store(tmp_path: Path) -> DeltaStore:
    return DeltaStore(tmp_path)


def made_by_another(path: str, *more: Field, **named: Any) -> DeltaTable:
    return DeltaTable.create(path, Schema([Field("id", LONG), Field("name", STRING), *more]), **named)


def checked(path: str) -> None:
    made_by_another(path).alter.add_constraint({"large": "id > 5"})


def computed(path: str) -> None:
    made_by_another(path, Field("twice", LONG, metadata={"delta.generationExpression": "id * 2"}))


def mapped(path: str) -> None:
    made_by_another(
        path,
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
        },
    )


def lacking(path: str) -> None:
    made_by_another(path, Field("must", STRING, nullable=False))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (checked, r"has constraints\.large, which this sink does not keep: write it with foreachBatch"),
        (computed, "has generationExpression of twice, which this sink does not keep"),
        (mapped, "has column mapping, which this sink does not keep"),
        (lacking, "requires a column must: add it"),
    ],
)
def test_columns_that_the_table_does_not_keep_are_refused(
    store: DeltaStore, make: Callable[[str], None], says: str
) -> None:
    make(store.path)
    version = DeltaTable(store.path).version()
    made = writer(store)
    with pytest.raises(OptionError, match=says):
        made.commit_once(TASK, [left(made, TASK, [(1, "a")])])
    assert DeltaTable(store.path).version() == version


def test_a_store_that_the_driver_may_not_read(store: DeltaStore) -> None:
    """The error is one sentence; a name that is too long for the disk stands for a store that returns errors."""
    made = writer(store)
    found = left(made, TASK, [(1, "a")])
    nameless = dataclasses.replace(found, files=[dataclasses.replace(file, name="x" * 300) for file in found.files])
    with pytest.raises(
        ClusterError, match=r"cannot look for what the tasks wrote to .*too long.* Nothing of this batch"
    ):
        made.commit_once(TASK, [nameless])
    assert made.commit_once(TASK, [found])


def test_a_column_without_nulls(store: DeltaStore) -> None:
    DeltaTable.create(store.path, Schema([Field("id", LONG), Field("name", STRING, nullable=False)]))
    made = writer(store)
    with pytest.raises(
        ClusterError, match=r"batch 0 was refused: rows of it have no name, which the table .* requires"
    ):
        made.commit_once(TASK, [left(made, TASK, [(1, "a"), (2, None)])])
    assert made.commit_once(TASK, [left(made, TASK, [(1, "a"), (2, "b"), (3, "")])])
    assert store.rows() == [(1, "a"), (2, "b"), (3, "")]


@pytest.mark.parametrize("by", [{}, {"keyColumns": "id"}], ids=["appended", "merged"])
def test_an_empty_text_in_a_partition_that_may_not_be_null(store: DeltaStore, by: dict[str, str]) -> None:
    """An empty text is null for Delta: with it in the log, no reader could read the table."""
    schema = Schema([Field("id", LONG), Field("name", STRING, nullable=False)])
    DeltaTable.create(store.path, schema, partition_by=["name"])
    made = writer(store, partitionColumns="name", **by)  # type: ignore[arg-type]  # options by name
    with pytest.raises(
        ClusterError, match=r"batch 0 was refused: rows of it have no name, which the table .* requires"
    ):
        made.commit_once(TASK, [left(made, TASK, [(1, "a"), (2, "")])])
    assert made.commit_once(TASK, [left(made, TASK, [(1, "a"), (2, "b")])])
    assert store.rows() == [(1, "a"), (2, "b")]


def test_a_commit_of_unknown_outcome(store: DeltaStore) -> None:
    """delta-rs raises an error without a class of its own after it has committed."""
    made = writer(store, keyColumns="id")
    merge = made._merge

    def merge_and_raise(*given: Any) -> None:
        merge(*given)
        raise Exception("broken\n   somewhere")

    made._merge = merge_and_raise
    with pytest.raises(ClusterError, match=r"whether batch 0 is in .* is not known, a restart looks for it: broken$"):
        made.commit_once(TASK, [left(made, TASK, [(1, "a")])])
    again = writer(store, keyColumns="id")
    assert not again.commit_once(TASK, [left(again, TASK, [(1, "a")])])
    assert store.rows() == [(1, "a")]


@pytest.mark.parametrize("by", [{}, {"keyColumns": "id"}], ids=["appended", "merged"])
def test_commits_with_conflicts_are_retried_with_pauses(
    store: DeltaStore, by: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(store, **by)  # type: ignore[arg-type]  # options by name
    look = made.table
    looks = iter(range(8))

    def table() -> Any:
        found = look()
        if (number := next(looks)) < 7:
            store.by_another(100 + number)
        return found

    made.table = table
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        pauses = without_sleep(patch)
        assert made.commit_once(TASK, [left(made, TASK, [(1, "a")])])
    assert [pause for pause in pauses if pause >= 0.05] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert caplog.text.count("came first; batch 0 is merged again") == bool(by)


def test_a_column_name_that_differs_by_case(store: DeltaStore) -> None:
    made_by_another(store.path)
    made = writer(store, StructType([ROWS["id"], StructField("NAME", StringType())]), mergeSchema="true")
    with pytest.raises(OptionError, match=r"does not take the columns: .*NAME.*\. Rename or drop them"):
        made.table()


def test_files_that_the_driver_cannot_find(store: DeltaStore) -> None:
    """Each executor may have its own folder for the table: no commit names a file that the driver cannot find."""
    made = writer(store)
    found = left(made, TASK, [(1, "a")])
    (file,) = Path(store.path).glob("*.parquet")
    file.rename(file.with_suffix(".elsewhere"))
    with pytest.raises(StagingError, match=r"the driver does not find what a task wrote to .* must be storage that"):
        made.commit_once(TASK, [found])
    file.with_suffix(".elsewhere").rename(file)
    assert made.commit_once(TASK, [found])
    assert store.rows() == [(1, "a")]


@pytest.mark.parametrize(
    ("columns", "partition", "says"),
    [
        ([StructField("id", LongType())], "id", "names all columns"),
        ([*ROWS, StructField("raw", BinaryType())], "raw", "names raw, which is binary"),
        (
            [*ROWS, StructField("sum", DecimalType(9, 2))],
            "sum",
            r"names sum, which is decimal\(9,2\): Delta divides no",
        ),
        ([*ROWS, StructField("Name", LongType())], "id", "does not take the columns: .*'Name'. Rename or drop them"),
    ],
)
def test_invalid_partition_columns(store: DeltaStore, columns: list[StructField], partition: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, StructType(columns), partitionColumns=partition)


def test_a_type_that_does_not_exist_in_delta(store: DeltaStore) -> None:
    with pytest.raises(OptionError, match="the column a is interval day to second, which Delta has not: cast it"):
        writer(store, StructType([StructField("id", LongType()), StructField("a", DayTimeIntervalType())]))


def test_a_folder_as_a_hadoop_uri(store: DeltaStore) -> None:
    for path in (f"file:{store.path}", f"file://{store.path}"):
        assert writer(store, path=path).path == store.path
