"""The query: readings from any partition → one topic in order for each machine, and others for what cannot be there.

What came too late goes to a topic and a table of its own; what is no reading, to a topic of dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples import dead_letters
from examples.reordered.buffer import Buffer, Reading

READINGS, ORDERED, LATE, DEAD = "readings", "readings-ordered", "readings-late", "readings-dead-letters"
READING = "machine STRING, at_ms LONG, number LONG, value DOUBLE"
COMPLETE = " AND ".join(f"{name} IS NOT NULL" for name in ("machine", "at_ms", "number", "value"))
COMPLETE += " AND abs(value) < double('Infinity')"  # NaN is above that
BOUND_MS = 30_000


def readings(spark: SparkSession, bootstrap: str, topic: str, group: str, **options: str) -> DataFrame:
    """A topic of readings as rows, with where each was; what does not decode becomes a dead letter with the reason."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    source = source.option("startingOffsets", "earliest").option("groupId", group).options(**options)
    source = source.option("valueFormat", "json").option("valueSchema", READING).option("deadLetterTopic", DEAD)
    return source.load().select("value.*", "topic", "partition", "offset")


def reorder(rows: DataFrame, bootstrap: str, folder: Path, bound_ms: int = BOUND_MS, **trigger: Any) -> StreamingQuery:
    """Each reading exactly once, to one topic or the other; both change in one transaction.

    There is no watermark: it would make Spark drop what is late, and say so in a counter only. A reading that lacks a
    field has no place in any order: it becomes a dead letter, in the same transaction, and leaves the state as it is.
    """

    def give_way(key: tuple[str], batches: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        buffer = Buffer.from_json(state.get[0]) if state.exists else Buffer()
        rows = pd.concat(list(batches))
        dead = rows[~rows["complete"]]
        came = [
            Reading(int(at_ms), int(number), float(value))
            for at_ms, number, value in rows.loc[rows["complete"], ["at_ms", "number", "value"]].to_numpy(object)
        ]
        ready, late = buffer.take(came, bound_ms)
        if came:
            state.update((buffer.to_json(),))
        made = [(ORDERED, _value(key[0], reading), "") for reading in ready]
        made += [(LATE, _value(key[0], reading), "") for reading in late]
        made += [(DEAD, known, origin) for known, origin in zip(dead["known"], dead["origin"], strict=True)]
        yield pd.DataFrame(made, columns=["topic", "value", "origin"]).assign(machine=key[0])

    known = fn.to_json(fn.struct("machine", "at_ms", "number", "value"))
    origin = dead_letters.origin().alias("origin")
    asked = rows.select("*", fn.expr(COMPLETE).alias("complete"), known.alias("known"), origin)
    given = asked.groupBy("machine").applyInPandasWithState(
        give_way, "topic STRING, value STRING, origin STRING, machine STRING", "buffer STRING", "append", "NoTimeout"
    )
    headers = dead_letters.headers(fn.col("origin")).alias("headers")
    ordered = given.select("topic", fn.col("machine").alias("key"), "value", headers)
    writer = ordered.writeStream.format("odradek").queryName("reorder").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "reorder")).trigger(**trigger).start()


def waiting(spark: SparkSession, folder: Path) -> Iterator[tuple[str, int, int]]:
    """Machine, time and number of what the query holds back, read from the state in its checkpoint."""
    for row in spark.read.format("statestore").load(str(folder / "checkpoints" / "reorder")).collect():
        for reading in Buffer.from_json(row.value.groupState.buffer).waiting:
            yield row.key.machine, reading.at_ms, reading.number


def keep_late(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """The late readings, in a Delta table: somebody may want to count them after all."""
    rows = rows.select("machine", "at_ms", "number", "value")
    writer = rows.writeStream.format("odradek").queryName("late").option("sink", "delta").trigger(**trigger)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "late")).start(str(folder / "late"))


def _value(machine: str, reading: Reading) -> str:
    return json.dumps({"machine": machine, **asdict(reading)})
