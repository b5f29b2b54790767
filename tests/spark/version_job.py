"""The core of the connector with the Spark that runs this program: prints one JSON object of what was read.

    python -m tests.spark.version_job BOOTSTRAP FOLDER [SINK]

SINK is `delta`, or left out where the package of that sink is. It runs twice over one folder, so that the second run
goes on from the checkpoints of the first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark import __version__

from pyspark_odradek import session

RECORDS = 50
LIMIT = 7


def main(bootstrap: str, folder: Path, *sinks: str) -> None:
    spark = session("versions", master="local[2]", log_file=folder / "spark.log")
    servers = {"kafka.bootstrap.servers": bootstrap}
    first = len(list(folder.glob("run-*"))) * 2 * RECORDS
    (folder / f"run-{first}").mkdir()

    def read(topic: str, **options: str) -> list[int]:
        frame = spark.read.format("odradek").options(**servers, subscribe=topic, **options).load()
        return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())

    def write(numbers: range, **options: str) -> None:
        frame = spark.createDataFrame([(str(number),) for number in numbers], "value string")
        frame.write.format("odradek").options(**servers, topic="in", **options).mode("append").save()

    def copied(name: str, sink: dict[str, str], **options: str) -> list[int]:
        """Rows of each batch of a query that reads all that there is, into a topic of this name or what `sink` says."""
        if "sink" not in sink:
            sink = servers | {"topic": name, "createTopic": "true"} | sink
        source = spark.readStream.format("odradek").options(**servers, subscribe="in", **options).load()
        writer = source.selectExpr("CAST(value AS STRING) AS value").writeStream.format("odradek")
        writer = writer.options(**sink).option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        query = writer.start()
        query.processAllAvailable()
        query.stop()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    write(range(first, first + RECORDS), createTopic="true", topicPartitions="3")
    staging = {"delivery": "exactly_once", "stagingLocation": str(folder / "staging")}
    write(range(first + RECORDS, first + 2 * RECORDS), **staging)
    found: dict[str, Any] = {
        "version": __version__,
        "in": read("in"),
        "late_batches": copied("late", {}, startingOffsets="latest"),
        "exact_batches": copied("exact", {}, startingOffsets="earliest", maxOffsetsPerTrigger=str(LIMIT)),
        "once_batches": copied("once", {"delivery": "at_least_once"}, startingOffsets="earliest"),
    }
    found |= {"exact": read("exact"), "once": read("once")}
    if "delta" in sinks:
        from deltalake import DeltaTable

        table = str(folder / "table")
        copied("table", {"sink": "delta", "path": table}, startingOffsets="earliest")
        column = DeltaTable(table).to_pyarrow_table().column("value")
        found["table"] = sorted(int(value) for value in column.to_pylist())
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
