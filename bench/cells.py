"""The cells of the table: the load of each one, and the number of it that counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bench.generator import LoadResult

PARTITIONS = 3
# A run ends at this many bytes, so that they stay in the page cache and off the disk.
LIMIT_BYTES = 600_000_000


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    Args:
        name: of the row.
        mode: of the load generator.
        options: of the load generator.
        value: the number that counts, of one run.
        unit: of that number.
        better: `higher` or `lower`.
        filled_topic: for consuming: the topic that was filled beforehand with records of this size.
    """

    name: str
    mode: str
    options: Mapping[str, object]
    value: Callable[[LoadResult], float] = field(default=lambda result: result.records_per_s)
    unit: str = "records/s"
    better: str = "higher"
    filled_topic: str | None = None


SIZES = {"128 B": 128, "1 KB": 1024, "10 KB": 10_240, "100 KB": 102_400, "515 KB": 527_360}
# Larger than librdkafka's own limit, so that 515 KB records are not refused by the client, and within the broker's.
BIG = {"producer:message.max.bytes": 1_000_000, "producer:queue.buffering.max.kbytes": 65_536}


def _milliseconds(what: str, percentile: str, result: LoadResult) -> float:
    return result.percentile_us(what, percentile) / 1000


def produce_cells() -> list[Cell]:
    cells = []
    for acks in ("1", "all"):
        for label, size in SIZES.items():
            options = {"size": size, "producer:acks": acks, **BIG}
            cells.append(Cell(f"produce {label}, acks={acks}", "produce", options))
    one = {"size": 128, "producer:acks": 1, "producer:batch.num.messages": 1, "producer:linger.ms": 0}
    one["producer:queue.buffering.max.messages"] = 5000
    cells.append(Cell("produce 128 B, one record per request", "produce", one))
    compressed = {"size": 1024, "producer:acks": "all", "producer:compression.type": "lz4", **BIG}
    cells.append(Cell("produce 1 KB, lz4", "produce", compressed))
    idempotent = {"size": 1024, "producer:enable.idempotence": "true", **BIG}
    cells.append(Cell("produce 1 KB, idempotent", "produce", idempotent))
    return cells


def consume_cells() -> list[Cell]:
    # A librdkafka whose reader is behind by 100,000 records asks for no more of that partition for a second, which is
    # as long as a run: the broker that fills it sooner would seem to be the slower one.
    options = {"seconds": 20, "warmup": 0, "consumer:fetch.queue.backoff.ms": 1}
    return [
        Cell(f"consume {label}", "consume", {"size": size, **options},
             lambda result: result.read_per_s, filled_topic=f"filled-{size}")
        for label, size in {"100 B": 100, "1 KB": 1024}.items()
    ]  # fmt: skip


def other_cells() -> list[Cell]:
    both = {"size": 1024, "producer:acks": 1, **BIG}
    cells = [
        Cell("produce and consume 1 KB: produced", "both", both),
        Cell("produce and consume 1 KB: consumed", "both", both, lambda result: result.read_per_s),
    ]
    # The consumer takes a moment to find its offsets: its start is no part of the latency.
    steady = {"size": 1024, "rate": 2000, "warmup": 1.0, "producer:acks": "all", "producer:linger.ms": 0}
    for what, label in (("ack", "acknowledged"), ("read", "send to read")):
        for percentile in ("p50", "p99", "p99.9"):
            cells.append(
                Cell(
                    f"2,000 records of 1 KB per second, {label}, {percentile}",
                    "latency",
                    steady,
                    partial(_milliseconds, what, percentile),
                    unit="ms",
                    better="lower",
                )
            )
    return cells


FILLED = {"filled-100": (100, 400_000_000), "filled-1024": (1024, 1_500_000_000)}
CELLS = [*produce_cells(), *consume_cells(), *other_cells()]
# A first look: one of each kind.
QUICK = [
    cell
    for cell in CELLS
    if cell.mode != "produce" or cell.name in ("produce 1 KB, acks=all", "produce 128 B, one record per request")
]
