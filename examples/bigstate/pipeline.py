"""The query: each payment once, however often it is sent, by state that knows every payment's id; through a gate."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples import dead_letters

PAYMENTS, ONCE, DEAD = "payments-as-sent", "payments-once", "payments-dead-letters"
GATE = "payments-once"
TIMES = "times.json"  # when the newest process of a query began, had a session, and had done a batch; s since 1970 UTC
# What Spark says of a Python process that has not begun after ten seconds, as on a machine with much else to do.
TOO_SLOW, TRIES = "Python worker failed to connect back", 5
# RocksDB keeps the state outside the JVM's heap, and writes down what a batch changed instead of all of it.
SPARK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "2g",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def start(spark: SparkSession, bootstrap: str, group: str, checkpoint: Path, *, standby: bool) -> StreamingQuery:
    """One query; of several the one that does not stand by begins.

    A payment without an id equals no other: each becomes a dead letter, where one null would pass for all of them.
    """
    cluster = {"kafka.bootstrap.servers": bootstrap, "gate": GATE, "groupId": group}
    source = spark.readStream.format("odradek").options(**cluster).option("standby", str(standby).lower())
    source = source.option("subscribe", PAYMENTS).option("startingOffsets", "earliest")
    payments = source.option("maxOffsetsPerTrigger", "200000").load()
    origin = fn.when(fn.col("key").isNull(), dead_letters.origin()).alias("origin")
    known = payments.select("key", "value", origin, fn.coalesce("key", origin.cast("binary")).alias("id"))
    rows = known.dropDuplicates(["id"]).select(
        fn.when(fn.col("origin").isNull(), ONCE).otherwise(DEAD).alias("topic"),
        "key",
        "value",
        dead_letters.headers(fn.col("origin")).alias("headers"),
    )
    writer = rows.writeStream.format("odradek").queryName(group).options(**cluster)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def main() -> None:
    """A process of one query, until it is killed."""
    parser = argparse.ArgumentParser(prog="python -m examples.bigstate.pipeline")
    parser.add_argument("bootstrap")
    parser.add_argument("group")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--standby", action="store_true")
    given = parser.parse_args()
    from pyspark_odradek import session

    began = time.time()
    spark = session(f"bigstate-{given.group}", master="local[2]", log_file=given.folder / "spark.log", config=SPARK)
    ready = time.time()
    for tries in reversed(range(TRIES)):
        query = start(spark, given.bootstrap, given.group, given.folder / "checkpoint", standby=given.standby)
        while query.isActive and query.lastProgress is None:
            time.sleep(0.02)
        if (first := query.lastProgress) is not None:
            times = {"began": began, "session": ready, "batch": time.time(), "durations_ms": dict(first.durationMs)}
            (given.folder / TIMES).write_text(json.dumps(times))
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not tries or TOO_SLOW not in str(error):
                raise
            print(f"begins again: {TOO_SLOW}", flush=True)


if __name__ == "__main__":
    main()
