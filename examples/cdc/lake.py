"""From the topics to Delta tables that are like the first ones, by Spark: rows by their key, each batch once.

Spark's own `create_auto_cdc_flow` does this for tables of a format that can MERGE, with its catalog and jar; here the
sink does it, by `keyColumns` and `deleteColumn`. Values stay PostgreSQL's texts, as they are in the topics.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from deltalake import DeltaTable
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from examples.cdc.shop import topic_of
from examples.starting import start_all

PRIMARY_KEYS = """
SELECT attrelid::regclass::text, array_agg(attname::text ORDER BY attname) FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indisprimary GROUP BY attrelid
"""
DELETED = "cdc_deleted"  # says which rows the sink deletes, and is not written
# Changes that a batch has at most: the driver holds them in memory, beside the table, which it reads for each batch.
AT_ONCE = 20_000
TRIGGER = "1 second"


def follow(
    spark: SparkSession, bootstrap: str, database: psycopg.Connection[Any], folder: Path, tables: list[str]
) -> None:
    """Take changes as they come, until the process ends, or a query does: its error is raised."""
    trigger = {"processingTime": TRIGGER}
    start_all(*(partial(start, spark, bootstrap, database, folder, table, trigger) for table in tables))
    spark.streams.awaitAnyTermination()


def catch_up(
    spark: SparkSession, bootstrap: str, database: psycopg.Connection[Any], folder: Path, tables: list[str]
) -> None:
    """Take the changes that there are, of one table after another."""
    for table in tables:
        start(spark, bootstrap, database, folder, table, {"availableNow": True}).awaitTermination()


def start(
    spark: SparkSession,
    bootstrap: str,
    database: psycopg.Connection[Any],
    folder: Path,
    table: str,
    trigger: dict[str, Any],
) -> StreamingQuery:
    """The query that follows one table; its checkpoint lies beside the table that it writes."""
    columns, keys = columns_of(database, table), keys_of(database, table)
    writer = changes(spark, bootstrap, table, columns, keys).writeStream.format("odradek").queryName(table)
    writer = writer.options(sink="delta", keyColumns=",".join(keys), deleteColumn=DELETED, mergeSchema="true")
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / table))
    return writer.trigger(**trigger).start(str(place_of(folder, table)))


def changes(spark: SparkSession, bootstrap: str, table: str, columns: list[str], keys: list[str]) -> DataFrame:
    """The rows as they are after each change; of one that is gone the primary key alone."""
    texts = StructType()
    for name in columns:
        texts.add(name, StringType())
    key = StructType([texts[name] for name in keys])
    topic = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    topic = topic.options(subscribe=topic_of(table), startingOffsets="earliest", maxOffsetsPerTrigger=AT_ONCE)
    records = topic.options(valueFormat="json", valueSchema=texts.json()).load()
    records = records.withColumn("key", fn.from_json(fn.col("key").cast("string"), key))
    return records.select(
        *(fn.col("key" if name in keys else "value").getField(name).alias(name) for name in columns),
        fn.col("value").isNull().alias(DELETED),
    )


def place_of(folder: Path, table: str) -> Path:
    """Where the table of the lake is."""
    return folder / "tables" / table


def columns_of(database: psycopg.Connection[Any], table: str) -> list[str]:
    """The names of a table's columns, in their order."""
    rows = database.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(*table.split("."))))
    return [column.name for column in rows.description or []]


def keys_of(database: psycopg.Connection[Any], table: str) -> list[str]:
    """The columns of a table's primary key."""
    with database.transaction():
        database.execute("SET LOCAL search_path TO ''")  # names of tables come with their schema
        keys: dict[str, list[str]] = dict(database.execute(PRIMARY_KEYS).fetchall())
    if table not in keys:
        raise SystemExit(f"no primary key, which is the key of the records: {table}")
    return keys[table]


def rows(folder: Path, table: str, columns: list[str]) -> Counter[tuple[str | None, ...]]:
    """The rows of a table of the lake, as texts; none where there is no table yet."""
    place = str(place_of(folder, table))
    if not DeltaTable.is_deltatable(place):
        return Counter()
    found = DeltaTable(place).to_pyarrow_table()
    absent = [None] * found.num_rows  # of a column that is so new that no row has come with it
    return Counter(
        zip(
            *(found.column(name).to_pylist() if name in found.column_names else absent for name in columns),
            strict=True,
        )
    )
