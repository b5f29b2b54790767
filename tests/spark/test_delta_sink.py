"""The Delta sink: each batch once, in one commit of the log, whatever dies and whoever else writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_odradek.delta_sink import DeltaStreamWriter, WrittenFile, _Files
from pyspark_odradek.errors import FencedError, OptionError
from pyspark_odradek.sink import stream_writer
from tests.spark import dying_source
from tests.spark.queries import load_stream, numbered
from tests.spark.test_exact_sink import forget_commit
from tests.support.clients import create_topic

ROWS = StructType([StructField("id", LongType()), StructField("name", StringType())])


def writer(folder: Path, schema: StructType = ROWS, **options: str) -> DeltaStreamWriter:
    made = stream_writer({"sink": "delta", "path": str(folder), **options}, schema, False)
    assert isinstance(made, DeltaStreamWriter)
    return made


def files(made: DeltaStreamWriter, numbers: range) -> list[WrittenFile]:
    """What one task writes for these numbers."""
    rows = pa.table({"id": list(numbers), "name": [f"n{n % 3}" for n in numbers]})
    task = _Files(made.path, rows.schema, made.partition_columns, made.compression)
    task.add(rows)
    return task.close()


def ids(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("id").to_pylist())


def test_a_batch_is_taken_once(tmp_path: Path) -> None:
    made = writer(tmp_path / "t")
    assert made.commit_files("query", 0, files(made, range(10)))
    assert not made.commit_files("query", 0, files(made, range(10)))
    assert writer(tmp_path / "t").commit_files("query", 1, files(made, range(10, 20)))
    assert made.commit_files("another query", 0, files(made, range(20, 30)))
    with pytest.raises(FencedError, match="has batch 1 of this query already, and this driver is at batch 0"):
        made.commit_files("query", 0, files(made, range(10)))
    assert ids(tmp_path / "t") == list(range(30))


def test_two_drivers_that_commit_at_the_same_moment(tmp_path: Path) -> None:
    """The other one commits the same batch between our look at the table and our commit."""
    made, other = writer(tmp_path / "t"), writer(tmp_path / "t")
    made.commit_files("query", 0, files(made, range(10)))
    look = made.table
    looked: list[DeltaTable] = []

    def table() -> DeltaTable:
        found = look()
        if not looked:
            looked.append(found)
            assert other.commit_files("query", 1, files(other, range(10, 20)))
        return found

    made.table = table  # type: ignore[method-assign]
    assert not made.commit_files("query", 1, files(made, range(10, 20)))
    assert ids(tmp_path / "t") == list(range(20))


def test_commits_of_others_between_cost_a_second_look(tmp_path: Path) -> None:
    made = writer(tmp_path / "t")
    made.commit_files("query", 0, files(made, range(10)))
    look = made.table
    looks = 0

    def table() -> DeltaTable:
        nonlocal looks
        found = look()
        looks += 1
        if looks < 4:
            write_deltalake(str(tmp_path / "t"), pa.table({"id": [100 + looks], "name": ["x"]}), mode="append")
        return found

    made.table = table  # type: ignore[method-assign]
    assert made.commit_files("query", 1, files(made, range(10, 20)))
    assert (looks, ids(tmp_path / "t")) == (4, [*range(20), 101, 102, 103])


def test_partitions(tmp_path: Path) -> None:
    made = writer(tmp_path / "t", partitionColumns="name")
    written = files(made, range(30))
    assert sorted(file.partition_values["name"] or "" for file in written) == ["n0", "n1", "n2"]
    made.commit_files("query", 0, written)
    table = DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["name"]
    found = table.to_pyarrow_table(partitions=[("name", "=", "n1")])
    assert sorted(found.column("id").to_pylist()) == list(range(1, 30, 3))
    with pytest.raises(OptionError, match="is partitioned by name: set partitionColumns"):
        writer(tmp_path / "t").table()


def test_columns_that_do_not_fit_are_told(tmp_path: Path) -> None:
    made = writer(tmp_path / "t")
    made.commit_files("query", 0, files(made, range(3)))
    other = StructType([StructField("id", StringType()), StructField("name", StringType())])
    with pytest.raises(OptionError, match=r"do not fit the table .*id is .*long.* there, .*string.* here"):
        writer(tmp_path / "t", other).table()
    wider = StructType([*ROWS, StructField("more", LongType())])
    with pytest.raises(OptionError, match="has no column more: set mergeSchema=true"):
        writer(tmp_path / "t", wider).table()
    table = writer(tmp_path / "t", wider, mergeSchema="true").table()
    assert [each.name for each in table.schema().fields] == ["id", "name", "more"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": ""}, "needs the table's folder"),
        ({"partitionColumns": "day"}, "names day, which no column is called"),
        ({"compression": "rar"}, "compression is one of"),
        ({"mergeShema": "true"}, "did you mean 'mergeSchema'"),
        ({"kafka.acks": "all"}, "have no meaning for the Delta sink"),
        ({"sink": "lake"}, "sink is one of topic, delta"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        stream_writer({"sink": "delta", "path": str(tmp_path)} | options, ROWS, False)


def test_a_stream_into_a_table_through_deaths(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """Killed before and after the commit, and run again after a lost note of Spark's: every row is there once."""
    create_topic(odradek, topic, 2)
    spark.dataSource.register(dying_source.DyingSource)
    plan = tmp_path / "plan"
    plan.write_text("before commit_files\nafter commit_files")
    count = 0
    for deaths in range(4):
        numbered(odradek, topic, range(count, count + 100))
        count += 100
        stream = load_stream(spark, odradek, subscribe=topic).selectExpr(
            "INT(STRING(value)) id", "timestamp", "DATE(timestamp) day"
        )
        out = stream.writeStream.format("odradek_dying").option("sink", "delta").option("plan", str(plan))
        out = out.option("checkpointLocation", str(tmp_path / "checkpoint")).option("partitionColumns", "day")
        query = out.trigger(availableNow=True).start(str(tmp_path / "table"))
        if deaths < 2:
            with pytest.raises(Exception):  # noqa: B017 - of Spark, about a worker that is gone
                query.awaitTermination(150)
        else:
            assert query.awaitTermination(150)
        if deaths == 2:
            forget_commit(tmp_path)
    assert plan.read_text() == ""
    assert ids(tmp_path / "table") == list(range(400))
    assert str(DeltaTable(str(tmp_path / "table")).schema().to_arrow()).count("UTC") == 1
