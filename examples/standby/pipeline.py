"""The query: each movement with the balance after it, by state for each account, written through a gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples import dead_letters
from examples.standby.generator import BALANCES, DEAD, MOVEMENTS

GATE = "balances"
MOVEMENT = "number LONG, account STRING, cents LONG"
COMPLETE = "number IS NOT NULL AND account IS NOT NULL AND cents IS NOT NULL"
BOOKED = "number LONG, account STRING, cents LONG, entry LONG, balance_cents LONG, origin STRING"


def booked(stream: DataFrame) -> DataFrame:
    """Each movement with its number among those of its account, and the balance after it.

    One that lacks a field has neither, and changes no balance.
    """

    def book_all(key: tuple[str], batches: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        before = state.get if state.exists else (0, 0)
        rows, *after = book(pd.concat(list(batches)), *before)
        if rows["complete"].any():
            state.update(tuple(after))
        yield rows[["number", "account", "cents", "entry", "balance_cents", "origin"]]

    rows = stream.select("value.*", "offset", dead_letters.origin().alias("origin"))
    return (
        rows.withColumn("complete", fn.expr(COMPLETE))
        .groupBy("account")
        .applyInPandasWithState(book_all, BOOKED, "entry LONG, balance_cents LONG", "append", "NoTimeout")
    )


def book(rows: Any, entry: int, balance_cents: int) -> tuple[Any, int, int]:
    """Book the movements of one account, of which `entry` were booked before; returns (rows, entry, balance in cents).

    The rows are in order of their offsets, with the columns `entry` and `balance_cents`; both are null where a row is
    not `complete`, and `origin` is empty where it is.
    """
    rows = rows.sort_values("offset")
    whole = rows["complete"]
    cents = rows["cents"].where(whole, 0).astype("int64")
    rows["entry"] = (entry + whole.cumsum()).astype("Int64").where(whole)
    rows["balance_cents"] = (balance_cents + cents.cumsum()).astype("Int64").where(whole)
    rows["origin"] = rows["origin"].where(~whole, "")
    # Pandas has floats where one of the rows has no number.
    rows = rows.astype({"number": "Int64", "cents": "Int64"})
    return rows, entry + int(whole.sum()), balance_cents + int(cents.sum())


def start(spark: SparkSession, bootstrap: str, group: str, checkpoint: Path, *, standby: bool) -> StreamingQuery:
    """One of the two queries. They differ in group, checkpoint, and in who begins."""
    cluster = {"kafka.bootstrap.servers": bootstrap, "gate": GATE, "groupId": group}
    source = spark.readStream.format("odradek").options(**cluster).option("standby", str(standby).lower())
    source = source.option("subscribe", MOVEMENTS).option("startingOffsets", "earliest")
    source = source.option("valueFormat", "json").option("valueSchema", MOVEMENT)
    stream = source.option("deadLetterTopic", DEAD).load()
    rows = booked(stream).select(
        fn.when(fn.col("origin") == "", BALANCES).otherwise(DEAD).alias("topic"),
        fn.col("account").alias("key"),
        fn.to_json(fn.struct("number", "account", "cents", "entry", "balance_cents")).alias("value"),
        dead_letters.headers(fn.col("origin")).alias("headers"),
    )
    writer = rows.writeStream.format("odradek").queryName(group).options(**cluster)
    return writer.option("checkpointLocation", str(checkpoint)).outputMode("append").start()
