"""A driver whose source and sinks log in by GSSAPI: prints one JSON object of what came of it.

    python -m tests.spark.kerberos_job SETTINGS TOPIC FOLDER

SETTINGS is a file of client properties. Python workers of executors are processes of this program's Java, and find the
realm by the variables that it was started with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException

from odradek.settings.properties import parse_properties
from pyspark_odradek import session
from tests.spark.queries import values

PARTITIONS = 2
RECORDS = 6


def main(file: Path, topic: str, folder: Path) -> None:
    options = {f"kafka.{name}": value for name, value in parse_properties(file.read_text()).items()}
    spark = session("kerberos", master="local[2]", log_file=folder / "spark.log")
    rows = spark.createDataFrame([(f"{number}",) for number in range(RECORDS)], "value string").repartition(PARTITIONS)
    staging = {"delivery": "exactly_once", "stagingLocation": str(folder / "staging")}
    writer = rows.write.format("odradek").options(**options, **staging, topic=topic, createTopic="true")
    writer.option("topicPartitions", str(PARTITIONS)).mode("append").save()
    source = spark.readStream.format("odradek").options(**options, subscribe=topic, startingOffsets="earliest").load()
    stream = source.selectExpr("value").writeStream.format("odradek").options(**options, topic=f"{topic}-copy")
    stream = stream.options(**staging, createTopic="true").option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    refused = ""
    try:
        rows.write.format("odradek").options(**options, topic=topic, delivery="at_least_once").mode("append").save()
    except PySparkException as error:
        refused = str(error)
    copied = spark.read.format("odradek").options(**options, subscribe=f"{topic}-copy").load()
    print(json.dumps({"copied": sorted(each.decode() for each in values(copied)), "refused": refused}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
