"""The query: each movement with the balance after it, by state for each account, written through a gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.standby.generator import BALANCES, MOVEMENTS

GATE = "balances"
MOVEMENT = "number LONG, account STRING, cents LONG"
BOOKED = "number LONG, account STRING, cents LONG, entry LONG, balance_cents LONG"


def booked(stream: DataFrame) -> DataFrame:
    """Each movement with its number among those of its account, and the balance after it."""

    def book(key: tuple[str], batches: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        entry, balance_cents = state.get if state.exists else (0, 0)
        rows = pd.concat(list(batches)).sort_values("offset")
        rows["entry"] = range(entry + 1, entry + 1 + len(rows))
        rows["balance_cents"] = balance_cents + rows["cents"].cumsum()
        state.update((entry + len(rows), int(rows["balance_cents"].iloc[-1])))
        yield rows[["number", "account", "cents", "entry", "balance_cents"]]

    rows = stream.select("value.*", "offset")
    return rows.groupBy("account").applyInPandasWithState(
        book, BOOKED, "entry LONG, balance_cents LONG", "append", "NoTimeout"
    )


def start(spark: SparkSession, bootstrap: str, group: str, checkpoint: Path, *, standby: bool) -> StreamingQuery:
    """One of the two queries. They differ in group, checkpoint, and in who begins."""
    cluster = {"kafka.bootstrap.servers": bootstrap, "gate": GATE, "groupId": group}
    source = spark.readStream.format("odradek").options(**cluster).option("standby", str(standby).lower())
    source = source.option("subscribe", MOVEMENTS).option("startingOffsets", "earliest")
    stream = source.option("valueFormat", "json").option("valueSchema", MOVEMENT).load()
    rows = booked(stream).select(fn.col("account").alias("key"), fn.to_json(fn.struct("*")).alias("value"))
    writer = rows.writeStream.format("odradek").queryName(group).options(**cluster).option("topic", BALANCES)
    return writer.option("checkpointLocation", str(checkpoint)).outputMode("append").start()
