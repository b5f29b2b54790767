"""The exactly-once topic sink by its driver, and by its tasks: one copy in turns, one Spark, one node of ours.

    python -m bench.spark_writers                        two tasks at once
    python -m bench.spark_writers --master 'local[1]'    one task after another
    python -m bench.spark_writers --executors 1 2 4      a standalone cluster each, of so many executors of one core

The benchmark counts the seconds that Spark reports for the batches themselves (addBatch): reading, encoding, writing,
and the ends of transactions; not the start of a query. The reading, which both ways share, is measured too, into a sink
that throws rows away. Driver, tasks and the broker are on one machine: the cost of a driver's network is not seen here,
and more executors than processors wait for each other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from rich.console import Console

from bench.spark_bench import KEY_BYTES, VALUE_BYTES, create, fill, source

SOURCE, COPY = "bench-writers", "bench-writers-copy"
ATTEMPTS = 8
READING, DRIVER, TASKS = "reading alone", "driver", "tasks"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_writers", description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--executors", type=int, nargs="+", help="in the place of --master")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    from tests.support.nodes.node import Node

    with tempfile.TemporaryDirectory() as folder, Node(Path(folder) / "node") as node:
        fill(node.bootstrap, SOURCE, given.records, "none")
        create(node.bootstrap, COPY, 4)
        if not given.executors:
            report(measured(given.master, node.bootstrap, Path(folder), given.rounds), given.records, given.master)
        for count in given.executors or ():
            report(on_cluster(count, node.bootstrap, Path(folder), given.rounds), given.records, f"{count} executors")


def on_cluster(executors: int, bootstrap: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """The same as `measured`, on a standalone cluster of so many executors."""
    from tests.spark.jobs import Standalone, environment

    here = folder / f"executors-{executors}"
    here.mkdir()
    os.environ.update(environment(here))
    with Standalone(here, executors) as cluster:
        config = {
            "spark.executor.memory": "500m",
            "spark.driver.host": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        }
        return measured(cluster.master, bootstrap, here, rounds, config)


def measured(
    master: str, bootstrap: str, folder: Path, rounds: int, config: Mapping[str, str] | None = None
) -> dict[str, list[float]]:
    """Run `measure` in a session of its own."""
    from pyspark_odradek import session

    spark = session("bench", master=master, log_file=folder / "spark.log", config=dict(config or {}))
    try:
        return measure(spark, bootstrap, folder, rounds)
    finally:
        spark.stop()


def measure(spark: Any, bootstrap: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round of each way; the first round warms up and is not among them. The ways take turns."""
    found: dict[str, list[float]] = {READING: [], DRIVER: [], TASKS: []}
    for number in range(rounds + 1):
        ways = list(found)
        for way in ways if number % 2 else reversed(ways):
            seconds = copied(spark, bootstrap, folder / f"{way}-{number}", way)
            if number:
                found[way].append(seconds)
    return found


def copied(spark: Any, bootstrap: str, folder: Path, way: str) -> float:
    """The same as `copy_once`; one that Spark gave up on, as it does on a busy machine, is started again."""
    for attempt in range(ATTEMPTS):
        try:
            return copy_once(spark, bootstrap, folder / str(attempt), way)
        except StreamingQueryException as error:
            print(f"{way}: {str(error).splitlines()[0][-120:]}", flush=True)
    raise SystemExit(f"{way}: {ATTEMPTS} copies in a row did not end")


def copy_once(spark: Any, bootstrap: str, folder: Path, way: str) -> float:
    """Seconds of the batches of one copy."""
    stream = source(spark.readStream, bootstrap, SOURCE).load().select("key", "value")
    writer = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder))
    if way == READING:
        writer = writer.format("noop")
    else:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": COPY, "markerTopic": f"{COPY}-markers"}
        writer = writer.format("odradek").options(**options, exactlyOnceWriters=way)
    query = writer.start()
    query.awaitTermination()
    return float(sum(progress["durationMs"].get("addBatch", 0) for progress in query.recentProgress)) / 1000


def report(found: dict[str, list[float]], count: int, master: str) -> None:
    """Print each way, and the ratio of both."""
    console = Console()
    each = KEY_BYTES + VALUE_BYTES
    console.print(f"{count:,} records of {each} bytes, 4 partitions, {master}")
    for way, seconds in found.items():
        median = statistics.median(seconds)
        rounds = ", ".join(f"{one:.2f}" for one in seconds)
        console.print(f"{way:<14} {median:6.2f} s  {count * each / median / 1e6:6.0f} MB/s  ({rounds})")
    ratios = [driver / tasks for driver, tasks in zip(found[DRIVER], found[TASKS], strict=True)]
    console.print(f"tasks are {statistics.median(ratios):.2f} times as fast as the driver (median of the rounds)")


if __name__ == "__main__":
    main()
