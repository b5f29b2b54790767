"""Topics in SQL: views, and tables of the catalog that are read, read as streams, and inserted into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_odradek import sql_table
from pyspark_odradek.errors import OptionError
from pyspark_odradek.source.schema import source_schema
from tests.spark.queries import numbered
from tests.support.clients.confluent import await_ends, create_topic

OF_A_TABLE = {
    "option.kafka.bootstrap.servers": "b:1",
    "kafka.bootstrap.servers": "b:1",
    "option.subscribe": "t",
    "subscribe": "t",
    "option.startingOffsets": "earliest",
    "startingOffsets": "earliest",
    "provider": "odradek",
    "owner": "somebody",
}


def test_a_topic_is_a_view(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(10))
    spark.sql(
        f"CREATE TEMPORARY VIEW numbers USING odradek OPTIONS (`kafka.bootstrap.servers` '{odradek}', "
        f"subscribe '{topic}')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, sum(INT(STRING(value))) AS total FROM numbers").collect()
    assert (row.n, row.total) == (10, 45)
    spark.sql("DROP VIEW numbers")


@pytest.fixture
def table(spark: Any, odradek: str, topic: str) -> Iterator[str]:
    """The name of a table over a topic with ten numbers."""
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(10))
    name = topic.replace("-", "_")
    spark.sql(f"CREATE TABLE {name} USING odradek OPTIONS (`kafka.bootstrap.servers` '{odradek}', subscribe '{topic}')")
    yield name
    spark.sql(f"DROP TABLE {name}")


def test_a_topic_is_a_table(spark: Any, odradek: str, topic: str, table: str, tmp_path: Path) -> None:
    def numbers(behind: str = "") -> list[int]:
        found = spark.sql(f"SELECT INT(STRING(value)) n FROM {table} {behind}").collect()
        return sorted(row.n for row in found)

    assert numbers() == list(range(10))
    assert numbers("WITH (endingTimestamp = '1')") == [], "of a query, above those of the table"
    spark.sql(f"INSERT INTO {table} (key, value) VALUES (BINARY('k'), BINARY('10')), (BINARY('l'), BINARY('11'))")
    await_ends(odradek, topic, 2)
    assert numbers() == list(range(12))
    derived = spark.sql(f"SELECT * EXCEPT (timestampType) FROM {table}")
    assert len(derived.columns) == 6 and not any(field.metadata for field in derived.schema), "of its options"
    stream = spark.sql(f"SELECT INT(STRING(value)) n FROM STREAM {table} WITH (startingOffsets = 'earliest')")
    assert stream.isStreaming
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.option("path", str(tmp_path / "sink")).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "sink")).collect()) == list(range(12))


def test_a_table_that_cannot_be(spark: Any, odradek: str, topic: str) -> None:
    reach = f"`kafka.bootstrap.servers` '{odradek}', subscribe '{topic}'"
    with pytest.raises(Exception, match=r"kafka\.sasl\.password may not be an option of a table"):
        spark.sql(f"CREATE TABLE secrets USING odradek OPTIONS ({reach}, `kafka.sasl.password` 'x')")
    spark.sql(f"CREATE TABLE columns (key BINARY) USING odradek OPTIONS ({reach})")
    try:
        with pytest.raises(Exception, match="create a table without columns"):
            spark.sql("SELECT * FROM columns").collect()
    finally:
        spark.sql("DROP TABLE columns")


def test_options_lie_with_the_columns() -> None:
    columns = sql_table.with_options(source_schema(False), OF_A_TABLE)
    assert columns.simpleString() == source_schema(False).simpleString()
    kept = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingoffsets": "earliest"}
    assert sql_table.options_of(columns, {}) == kept
    assert sql_table.options_of(columns, {"startingOffsets": "latest"}) == kept | {"startingoffsets": "latest"}
    assert sql_table.to_write(columns, {}) == {"kafka.bootstrap.servers": "b:1", "topic": "t"}
    other = {"kafka.bootstrap.servers": "c:1", "topic": "u"}
    assert sql_table.to_write(columns, other) == other, "another cluster's settings are not mixed with these"


def test_a_tables_columns_stay_as_they_were_made() -> None:
    decoded = {"valueFormat": "json", "valueSchema": "id LONG"}
    columns = sql_table.with_options(source_schema(False), OF_A_TABLE | decoded)
    assert sql_table.to_read(columns, {"startingOffsets": "latest"} | decoded)["startingoffsets"] == "latest"
    for other in ({"valueSchema": "x LONG"}, {"includeHeaders": "true"}):
        with pytest.raises(OptionError, match="cannot be given behind a table, whose columns stay as they were made"):
            sql_table.to_read(columns, other)
    assert sql_table.to_read(source_schema(True), {"includeHeaders": "true"}) == {"includeHeaders": "true"}


def test_a_table_of_several_topics_takes_no_rows() -> None:
    several = OF_A_TABLE | {"subscribe": "a,b", "option.subscribe": "a,b"}
    columns = sql_table.with_options(source_schema(False), several)
    with pytest.raises(OptionError, match="reads no single topic: set its option topic"):
        sql_table.to_write(columns, {})


def test_a_query_is_no_table() -> None:
    assert not sql_table.is_of_a_table({"subscribe": "t", "kafka.bootstrap.servers": "b:1"})
    commented = StructType(
        [StructField("timestampType", BinaryType(), True, {"comment": "of ours"}), StructField("v", StringType())]
    )
    assert sql_table.options_of(commented, {"subscribe": "t"}) == {"subscribe": "t"}
