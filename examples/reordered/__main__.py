"""Readings of machines, out of order over four partitions, and in order again.

python -m examples.reordered                          a broker inside this process
python -m examples.reordered --bootstrap HOST:PORT --bound 60
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import Producer
from deltalake import DeltaTable

from examples.dead_letters import fields_of, put_aside
from examples.place import Place, arguments, place
from examples.reordered import pipeline
from examples.reordered.generator import Arrival, arrivals
from examples.topics import create_topic, records, refuse_failure, settle

PARTITIONS = 4
MACHINES = 8
# Which machine, when, and which of its readings; None is what the record does not say.
Position = tuple[str | None, int | None, int | None]


def main() -> int:
    parser = arguments("reordered", __doc__)
    parser.add_argument(
        "--bound", type=float, default=pipeline.BOUND_MS / 1000, help="seconds that a reading may be late"
    )
    parser.add_argument("--readings", type=int, default=500, help="of each of eight machines")
    given = parser.parse_args()
    with place("reordered", given) as found:
        return 0 if run(found, arrivals(1, MACHINES, given.readings), int(given.bound * 1000)) else 1


def run(at: Place, arrived: list[Arrival], bound_ms: int) -> bool:
    """Send, put in order, and tell where every reading is; whether each is in one place, and those in order are."""
    for topic in (pipeline.READINGS, pipeline.ORDERED, pipeline.LATE, pipeline.DEAD):
        create_topic(at.bootstrap, topic, PARTITIONS)
    send(at.bootstrap, arrived)
    # Small batches, as if readings came at their own pace.
    rows = pipeline.readings(at.spark, at.bootstrap, pipeline.READINGS, "reorder", maxOffsetsPerTrigger="500")
    pipeline.reorder(rows, at.bootstrap, at.folder, bound_ms, availableNow=True).awaitTermination()
    settle(at.bootstrap, pipeline.LATE)  # all of it is there for the next query
    late = pipeline.readings(at.spark, at.bootstrap, pipeline.LATE, "late")
    pipeline.keep_late(late, at.folder, availableNow=True).awaitTermination()
    return compare(at)


def send(bootstrap: str, arrived: list[Arrival]) -> None:
    """Send readings to one partition after another, as producers without keys do in the long run."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for arrival, partition in zip(arrived, itertools.cycle(range(PARTITIONS)), strict=False):
        producer.produce(pipeline.READINGS, arrival.value(), partition=partition, on_delivery=refuse_failure)
        producer.poll(0)
    producer.flush()


def compare(at: Place) -> bool:
    """Count the readings in all places beside those that came, and look at the order of each machine's."""
    dead = put_aside(at.bootstrap, pipeline.DEAD, pipeline.READINGS)
    came, ordered = (
        Counter(positions(at.bootstrap, pipeline.READINGS, dead)),
        list(positions(at.bootstrap, pipeline.ORDERED)),
    )
    table = str(at.folder / "late")  # made by the first reading that is late
    late = DeltaTable(table).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(table) else []
    aside, waits = [of_row(row) for row in late], list(pipeline.waiting(at.spark, at.folder))
    found = Counter(ordered) + Counter(aside) + Counter(waits)
    lost, twice, wrong = (came - found).total(), (found - came).total(), out_of_order(ordered)
    print(
        f"{came.total() + len(dead):,} readings: {len(ordered):,} in order, {len(aside):,} late and diverted, "
        f"{len(waits):,} wait, {len(dead):,} dead letters"
    )
    print(f"{lost:,} lost, {twice:,} twice, {wrong:,} out of order")
    return not (lost or twice or wrong)


def positions(bootstrap: str, topic: str, dead: Collection[tuple[int, int]] = ()) -> Iterator[Position]:
    """The records of a topic, without those at the partitions and offsets `dead`."""
    for message in records(bootstrap, topic, settled=True):
        if (message.partition(), message.offset()) not in dead:
            yield of_row(fields_of(message.value()))


def of_row(row: dict[str, Any]) -> Position:
    return row.get("machine"), row.get("at_ms"), row.get("number")


def out_of_order(readings: list[Position]) -> int:
    """How many come behind a later one of their machine."""
    newest: dict[str | None, int] = {}
    wrong = 0
    for machine, when, _ in readings:
        at_ms = when or 0
        wrong += at_ms < newest.get(machine, 0)
        newest[machine] = max(at_ms, newest.get(machine, 0))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
