"""Readings of machines, out of order over four partitions, and in order again.

python -m examples.reordered                          a broker inside this process
python -m examples.reordered --bootstrap HOST:PORT --bound 60
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from deltalake import DeltaTable

from examples.reordered import pipeline
from examples.reordered.generator import Arrival, arrivals
from examples.topics import create_topic, records, refuse_failure
from odradek.testing import EmbeddedBroker
from pyspark_odradek import session

PARTITIONS = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.reordered", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster that runs already")
    parser.add_argument(
        "--bound", type=float, default=pipeline.BOUND_MS / 1000, help="seconds that a reading may be late"
    )
    parser.add_argument("--readings", type=int, default=500, help="of each of eight machines")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = given.bootstrap or stack.enter_context(EmbeddedBroker()).bootstrap_servers
        for topic in (pipeline.READINGS, pipeline.ORDERED, pipeline.LATE):
            create_topic(bootstrap, topic, PARTITIONS)
        send(bootstrap, arrivals(1, 8, given.readings))
        spark = session("reordered", log_file=folder / "spark.log")
        stack.callback(spark.stop)
        # Small batches, as if readings came at their own pace.
        rows = pipeline.readings(spark, bootstrap, pipeline.READINGS, "reorder", maxOffsetsPerTrigger="500")
        pipeline.reorder(rows, bootstrap, folder, int(given.bound * 1000), availableNow=True).awaitTermination()
        late = pipeline.readings(spark, bootstrap, pipeline.LATE, "late")
        pipeline.keep_late(late, folder, availableNow=True).awaitTermination()
        ordered = sum(1 for _ in records(bootstrap, pipeline.ORDERED))
        table = str(folder / "late")  # made by the first reading that is late
        aside = DeltaTable(table).to_pyarrow_table().num_rows if DeltaTable.is_deltatable(table) else 0
        print(f"{8 * given.readings:,} readings: {ordered:,} in order, {aside:,} late and put aside, the rest waits")


def send(bootstrap: str, arrived: list[Arrival]) -> None:
    """Send readings to one partition after another, as producers without keys do in the long run."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for arrival, partition in zip(arrived, itertools.cycle(range(PARTITIONS)), strict=False):
        producer.produce(pipeline.READINGS, arrival.value(), partition=partition, on_delivery=refuse_failure)
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main()
