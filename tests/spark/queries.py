"""Short forms of queries that several tests share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.confluent import produce_all

# The test runs against Apache Kafka each time, too, and not only as a slow test.
ON_BOTH = pytest.mark.parametrize("bootstrap", ["odradek", "kafka"], indirect=True)


def load(spark: Any, bootstrap: str, **options: object) -> Any:
    """A batch read; `kafka_` in a name stands for `kafka.` and an underscore behind it for a dot."""
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**_named(options)).load()


def load_stream(spark: Any, bootstrap: str, **options: object) -> Any:
    """A streaming read from the beginning, unless the options say otherwise."""
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**_named({"startingOffsets": "earliest"} | options)).load()


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """(partition, offset, key, value) of every row, in the order of the log."""
    found = frame.select("partition", "offset", "key", "value").collect()
    as_bytes = [(r[0], r[1], *(None if b is None else bytes(b) for b in r[2:])) for r in found]
    return sorted(as_bytes, key=lambda row: row[:2])


def values(frame: Any) -> list[bytes]:
    """The values in the order of partition and offset."""
    return [row[3] for row in rows(frame)]


def numbered(bootstrap: str, topic: str, numbers: range, **settings: Any) -> None:
    """Produce one record a number: key n % 10, value n."""
    produce_all(bootstrap, topic, [(b"%d" % (n % 10), b"%d" % n) for n in numbers], **settings)


def drain(stream: Any, folder: Path, name: str = "sink") -> Any:
    """Run a stream until it has read what there is now, into Parquet; a second call goes on where the first ended."""
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).option("path", str(folder / name))
    query = writer.start()
    assert query.awaitTermination(400), "the stream did not end"
    return query


def drained(spark: Any, folder: Path, name: str = "sink") -> list[int]:
    """The values that `drain` has written, as numbers, sorted."""
    frame = spark.read.parquet(str(folder / name)).selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
    return sorted(row.n for row in frame.collect())


def _named(options: Mapping[str, object]) -> dict[str, str]:
    return {
        (f"kafka.{name[6:].replace('_', '.')}" if name.startswith("kafka_") else name): str(value)
        for name, value in options.items()
    }
