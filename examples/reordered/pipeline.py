"""The query: readings from any partition → one topic in order for each machine, and another for what came too late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.reordered.buffer import Buffer, Reading

READINGS, ORDERED, LATE = "readings", "readings-ordered", "readings-late"
READING = "machine STRING, at_ms LONG, number LONG, value DOUBLE"
BOUND_MS = 30_000


def readings(spark: SparkSession, bootstrap: str, topic: str, group: str, **options: str) -> DataFrame:
    """A topic of readings as rows."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    source = source.option("startingOffsets", "earliest").option("groupId", group).options(**options)
    return source.option("valueFormat", "json").option("valueSchema", READING).load().select("value.*")


def reorder(rows: DataFrame, bootstrap: str, folder: Path, bound_ms: int = BOUND_MS, **trigger: Any) -> StreamingQuery:
    """Each reading exactly once, to one topic or the other; both change in one transaction.

    There is no watermark: it would make Spark drop what is late, and say so in a counter only.
    """

    def give_way(key: tuple[str], batches: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        buffer = Buffer.from_json(state.get[0]) if state.exists else Buffer()
        came = [
            Reading(int(at_ms), int(number), float(value))
            for rows in batches
            for at_ms, number, value in zip(rows["at_ms"], rows["number"], rows["value"], strict=True)
        ]
        ready, late = buffer.take(came, bound_ms)
        state.update((buffer.to_json(),))
        made = [(ORDERED, key[0], *_fields(reading)) for reading in ready]
        made += [(LATE, key[0], *_fields(reading)) for reading in late]
        yield pd.DataFrame(made, columns=["topic", "machine", "at_ms", "number", "value"])

    given = rows.groupBy("machine").applyInPandasWithState(
        give_way, f"topic STRING, {READING}", "buffer STRING", "append", "NoTimeout"
    )
    told = given.select(
        "topic",
        fn.col("machine").alias("key"),
        fn.to_json(fn.struct("machine", "at_ms", "number", "value")).alias("value"),
    )
    writer = told.writeStream.format("odradek").queryName("reorder").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "reorder")).trigger(**trigger).start()


def waiting(spark: SparkSession, folder: Path) -> Iterator[tuple[str, int, int]]:
    """Machine, time and number of what the query holds back, read from the state in its checkpoint."""
    for row in spark.read.format("statestore").load(str(folder / "checkpoints" / "reorder")).collect():
        for reading in Buffer.from_json(row.value.groupState.buffer).waiting:
            yield row.key.machine, reading.at_ms, reading.number


def keep_late(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """What came too late, in a Delta table: somebody may want to count it after all."""
    writer = rows.writeStream.format("odradek").queryName("late").option("sink", "delta").trigger(**trigger)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "late")).start(str(folder / "late"))


def _fields(reading: Reading) -> tuple[int, int, float]:
    return reading.at_ms, reading.number, reading.value
