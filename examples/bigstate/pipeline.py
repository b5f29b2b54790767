"""The query: number and sum of the payments under each key as they are after a batch, written through a gate."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

PAYMENTS, TOTALS = "payments-by-customer", "totals-by-customer"
GATE = "totals"
PAYMENT = "cents LONG, sent_ms LONG"
TOTAL = "customer STRING, payments LONG, cents LONG, last_ms LONG"
# RocksDB keeps the state outside the JVM's heap, and writes down what a batch changed instead of all of it.
SPARK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "2g",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def add(key: tuple[str], batches: Iterable[Any], state: Any) -> Iterator[Any]:
    """The total of one customer after some payments more, and the time of the last of them."""
    import pandas as pd

    payments, cents = state.get if state.exists else (0, 0)
    last_ms = 0
    for batch in batches:
        payments += len(batch)
        cents += int(batch["cents"].sum())
        last_ms = max(last_ms, int(batch["sent_ms"].max()))
    state.update((payments, cents))
    yield pd.DataFrame({"customer": [key[0]], "payments": [payments], "cents": [cents], "last_ms": [last_ms]})


def start(spark: SparkSession, bootstrap: str, group: str, checkpoint: Path, *, standby: bool) -> StreamingQuery:
    """One query; of several the one that does not stand by begins."""
    cluster = {"kafka.bootstrap.servers": bootstrap, "gate": GATE, "groupId": group}
    source = spark.readStream.format("odradek").options(**cluster).option("standby", str(standby).lower())
    source = source.option("subscribe", PAYMENTS).option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", "200000")
    stream = source.option("valueFormat", "json").option("valueSchema", PAYMENT).load()
    payments = stream.select(fn.col("key").cast("string").alias("customer"), "value.*")
    totals = payments.groupBy("customer").applyInPandasWithState(
        add, TOTAL, "payments LONG, cents LONG", "append", "NoTimeout"
    )
    rows = totals.select(
        fn.col("customer").alias("key"), fn.to_json(fn.struct("payments", "cents", "last_ms")).alias("value")
    )
    writer = rows.writeStream.format("odradek").queryName(group).options(**cluster).option("topic", TOTALS)
    return writer.option("checkpointLocation", str(checkpoint)).outputMode("append").start()


def main() -> None:
    """A process of one query, until it is killed."""
    parser = argparse.ArgumentParser(prog="python -m examples.bigstate.pipeline")
    parser.add_argument("bootstrap")
    parser.add_argument("group")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--standby", action="store_true")
    given = parser.parse_args()
    from pyspark_odradek import session

    spark = session(f"bigstate-{given.group}", master="local[2]", log_file=given.folder / "spark.log", config=SPARK)
    checkpoint = given.folder / "checkpoint"
    start(spark, given.bootstrap, given.group, checkpoint, standby=given.standby).awaitTermination()


if __name__ == "__main__":
    main()
