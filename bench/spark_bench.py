"""The Spark connector against one node: decoding, batch reads, streams, the sink, and the latency of a micro-batch.

    python -m bench.spark_bench                          a node of ours in a temporary folder
    python -m bench.spark_bench --bootstrap HOST:PORT    a cluster that runs already

Rates are of the whole way through Spark's JVM into a sink that throws rows away; a busy machine lowers them.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from odradek.record.builder import build_batch
from odradek.record.record import Record

KEY_BYTES, VALUE_BYTES = 8, 100
LATENCY_RECORDS = 60


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_bench", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster that runs already")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap
        if bootstrap is None:
            from tests.support.nodes.node import Node

            bootstrap = stack.enter_context(Node(Path(folder) / "node")).bootstrap
        table = Table(title=f"{options.records:,} records of {KEY_BYTES} + {VALUE_BYTES} bytes, 4 partitions")
        for column in ("what", "median", "of", "bytes"):
            table.add_column(column, justify="left" if column == "what" else "right")
        for row in measure(bootstrap, Path(folder), options.records, options.rounds):
            table.add_row(*row)
            console.print("  ".join(row))
        console.print(table)


def measure(bootstrap: str, folder: Path, count: int, rounds: int) -> list[tuple[str, str, str, str]]:
    """One row a thing measured."""
    from pyspark_odradek import session

    found = [decoding(codec, rounds) for codec in ("none", "lz4", "zstd")]
    for codec in ("none", "lz4"):
        fill(bootstrap, f"bench-{codec}", count, codec)
    create(bootstrap, "bench-sink", 4)
    create(bootstrap, "bench-latency", 1)
    spark = session("bench", master="local[2]", log_file=folder / "spark.log")
    try:
        for codec in ("none", "lz4"):
            frame = source(spark.read, bootstrap, f"bench-{codec}").load()
            seconds = timed(lambda frame=frame: frame.write.format("noop").mode("overwrite").save(), rounds)
            found.append(as_rate(f"batch read, {codec}", count, seconds))
        seconds = timed(lambda: stream_once(spark, bootstrap, folder), rounds)
        found.append(as_rate("stream, availableNow, start and stop included", count, seconds))
        rows = spark.range(count // 4).selectExpr("CAST(id AS STRING) AS key", f"repeat('x', {VALUE_BYTES}) AS value")
        seconds = timed(lambda: sink(rows.write, bootstrap, "bench-sink").mode("append").save(), rounds)
        found.append(as_rate("topic sink", count // 4, seconds))
        found.append(latency(spark, bootstrap, folder))
    finally:
        spark.stop()
    return found


def decoding(codec: str, rounds: int) -> tuple[str, str, str, str]:
    """One core, no Spark: fetched bytes to Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from pyspark_odradek.record.decode import Decoder, whole_batches
    from pyspark_odradek.source.schema import source_schema

    batches = []
    for base in range(0, 20_000, 500):
        records = [Record(b"%08d" % n, b"%0100d" % n, (), timestamp_ms=n) for n in range(base, base + 500)]
        batches.append(build_batch(records, base_offset=base, compression=codec))
    fetched = memoryview(b"".join(batches))
    schema = to_arrow_schema(source_schema(False), timezone="UTC")

    def decode() -> None:
        for _ in Decoder(schema, "t", 0, 0, 1 << 62).decode(fetched, list(whole_batches(fetched))):
            pass

    seconds = timed(decode, rounds * 5)
    return as_rate(f"decoding one fetch, {codec}, one core", 20_000, seconds)


def latency(spark: Any, bootstrap: str, folder: Path) -> tuple[str, str, str, str]:
    """The time from a record's send until a sink in Python has its row; one record at a time."""
    arrived: dict[bytes, float] = {}

    def record_arrivals(batch: Any, _: int) -> None:
        for row in batch.select("value").collect():
            arrived[bytes(row.value)] = time.monotonic()

    stream = source(spark.readStream, bootstrap, "bench-latency").load()
    query = (
        stream.writeStream.foreachBatch(record_arrivals).option("checkpointLocation", str(folder / "latency")).start()
    )
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    sent: dict[bytes, float] = {}
    try:
        for number in range(LATENCY_RECORDS):
            value = b"%d" % number
            sent[value] = time.monotonic()
            producer.produce("bench-latency", value)
            producer.flush(10)
            while value not in arrived:
                time.sleep(0.001)
                assert time.monotonic() - sent[value] < 30, "the record did not arrive"
            time.sleep(0.05)
    finally:
        query.stop()
    delays = sorted((arrived[value] - sent[value]) * 1000 for value in list(sent)[5:])
    p95 = delays[int(len(delays) * 0.95)]
    return ("send to foreachBatch, one record", f"{statistics.median(delays):.0f} ms", f"p95 {p95:.0f} ms", "")


def stream_once(spark: Any, bootstrap: str, folder: Path) -> None:
    stream = source(spark.readStream, bootstrap, "bench-none").load()
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        writer = stream.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def source(reader: Any, bootstrap: str, topic: str) -> Any:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return reader.format("odradek").options(**options)


def sink(writer: Any, bootstrap: str, topic: str) -> Any:
    return writer.format("odradek").options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic})


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=30).values():
        future.result(30)


def fill(bootstrap: str, topic: str, count: int, codec: str) -> None:
    """Records that compress about as well as JSON does."""
    create(bootstrap, topic, 4)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": codec})
    for number in range(count):
        value = b"%050d" % (number * 2_654_435_761) * 2
        while True:
            try:
                producer.produce(topic, value, b"%08d" % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def timed(work: Callable[..., None], rounds: int) -> float:
    """The median of the seconds; one round more, the first one, is not counted."""
    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def as_rate(what: str, count: int, seconds: float) -> tuple[str, str, str, str]:
    mb_per_s = count * (KEY_BYTES + VALUE_BYTES) / seconds / 1e6
    return (
        what,
        f"{count / seconds:,.0f} records/s",
        f"{seconds / count * 1e9:,.0f} ns/record",
        f"{mb_per_s:.0f} MB/s",
    )


if __name__ == "__main__":
    main()
