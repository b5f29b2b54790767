"""The query at the centre: the rides of all cities → a table with the revenue of each city and hour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.cities.market import HOUR_MS

RIDE = "city STRING, number LONG, cents LONG, at_ms LONG"
PATTERN = r"^[a-z]+\.rides$"
TABLE = "revenue"

# City and the start of an hour → how many rides, and their cents.
Revenue = dict[tuple[str, datetime], tuple[int, int]]


def rides(spark: SparkSession, bootstrap: str) -> DataFrame:
    """The stream of rides of all cities; those that a pricer did not commit are left out."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribePattern", PATTERN).option("startingOffsets", "earliest")
    source = source.option("kafka.isolation.level", "read_committed").option("groupId", TABLE)
    return source.option("valueFormat", "json").option("valueSchema", RIDE).load().select("value.*")


def sums(stream: DataFrame) -> DataFrame:
    """A row for each city and hour of which rides have come, with what has come of it until now.

    There is no watermark: a city that was offline for hours brings rides of hours that are long over, and a watermark,
    which is that of all cities, would leave them out. The state is a row for each city and hour.
    """

    def add_up(key: tuple[str, int], batches: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        count, cents = state.get if state.exists else (0, 0)
        for rows in batches:
            count += len(rows)
            cents += int(rows["cents"].sum())
        state.update((count, cents))
        yield pd.DataFrame([(*key, count, cents)], columns=["city", "hour", "rides", "cents"])

    hours = stream.withColumn("hour", fn.floor(fn.col("at_ms") / fn.lit(HOUR_MS)))
    added = hours.groupBy("city", "hour").applyInPandasWithState(
        add_up, "city STRING, hour LONG, rides LONG, cents LONG", "rides LONG, cents LONG", "append", "NoTimeout"
    )
    return added.withColumn("hour", fn.timestamp_millis(fn.col("hour") * HOUR_MS))


def revenue(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """The sums in a Delta table; those of a city and hour replace what it had of them."""
    writer = rows.writeStream.format("odradek").queryName(TABLE)
    writer = writer.options(sink="delta", keyColumns="city,hour", checkpointLocation=str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / TABLE))


def revenue_in(folder: Path) -> Revenue:
    """The present rows of the table; none before it exists."""
    path = str(folder / TABLE)
    if not DeltaTable.is_deltatable(path):
        return {}
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return {(row["city"], row["hour"]): (row["rides"], row["cents"]) for row in rows}
