"""The Delta sink and tables that ask more of their writers than files: each is refused, and never broken."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
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


def test_a_store_that_does_not_let_the_driver_look(store: DeltaStore) -> None:
    """One sentence; a name that no disk takes stands for a store that answers with an error."""
    made = writer(store)
    found = left(made, TASK, [(1, "a")])
    nameless = dataclasses.replace(found, files=[dataclasses.replace(file, name="x" * 300) for file in found.files])
    with pytest.raises(
        ClusterError, match=r"cannot look for what the tasks wrote to .*too long.* Nothing of this batch"
    ):
        made.commit_once(TASK, [nameless])
    assert made.commit_once(TASK, [found])


def test_a_column_that_may_not_be_null(store: DeltaStore) -> None:
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
    """It is null to Delta: in the log, no reader would take the table any more."""
    schema = Schema([Field("id", LONG), Field("name", STRING, nullable=False)])
    DeltaTable.create(store.path, schema, partition_by=["name"])
    made = writer(store, partitionColumns="name", **by)  # type: ignore[arg-type]
    with pytest.raises(
        ClusterError, match=r"batch 0 was refused: rows of it have no name, which the table .* requires"
    ):
        made.commit_once(TASK, [left(made, TASK, [(1, "a"), (2, "")])])
    assert made.commit_once(TASK, [left(made, TASK, [(1, "a"), (2, "b")])])
    assert store.rows() == [(1, "a"), (2, "b")]


def test_a_commit_whose_end_is_not_known(store: DeltaStore) -> None:
    """As where delta-rs raises, with no class of its own, after it has committed."""
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
def test_lost_commits_pause_and_a_merge_says_of_them(
    store: DeltaStore, by: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(store, **by)  # type: ignore[arg-type]
    look = made.table
    pauses: list[float] = []
    looks = iter(range(8))

    def table() -> Any:
        found = look()
        if (number := next(looks)) < 7:
            store.by_another(100 + number)
        return found

    made.table = table
    here, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        # Threads of other queries of the process pause as they mean to.
        pauses.append(seconds) if threading.get_ident() == here else sleep(seconds)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(time, "sleep", pause)
        assert made.commit_once(TASK, [left(made, TASK, [(1, "a")])])
    assert [pause for pause in pauses if pause >= 0.05] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert caplog.text.count("came first; batch 0 is merged again") == bool(by)


def test_a_column_that_the_table_has_in_other_letters(store: DeltaStore) -> None:
    made_by_another(store.path)
    made = writer(store, StructType([ROWS["id"], StructField("NAME", StringType())]), mergeSchema="true")
    with pytest.raises(OptionError, match=r"does not take the columns: .*NAME.*\. Rename or drop them"):
        made.table()


def test_files_that_the_driver_does_not_see(store: DeltaStore) -> None:
    """As where the table's folder is each executor's own: no commit names a file that is not there."""
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
def test_columns_that_divide_no_table(store: DeltaStore, columns: list[StructField], partition: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, StructType(columns), partitionColumns=partition)


def test_a_type_that_delta_has_not(store: DeltaStore) -> None:
    with pytest.raises(OptionError, match="the column a is interval day to second, which Delta has not: cast it"):
        writer(store, StructType([StructField("id", LongType()), StructField("a", DayTimeIntervalType())]))


def test_a_folder_as_hadoop_writes_it(store: DeltaStore) -> None:
    for path in (f"file:{store.path}", f"file://{store.path}"):
        assert writer(store, path=path).path == store.path
