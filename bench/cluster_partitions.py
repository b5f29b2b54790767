"""Measures of a cluster by the number of its partitions: functions as in cluster_cells."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.cluster_cells import LIMIT_BYTES, Cell, Measure, throughput
from bench.generator import run_load
from bench.trios import NODES, Trio

RECORD_BYTES = 1024
STEADY_BYTES_S = 5_000_000
STEADY_PARTITIONS = (100, 500, 2_000)
# The time that a consumer needs until it reads so many partitions steadily.
SETTLED_S = 5.0
STEADY_S = 10.0
READ_PARTITIONS = (1, 3, 6, 12)


class SentToRead:
    """One producer and one consumer at a steady rate: measured once, shown in two rows.

    Every record goes to the next partition, so that each partition gets a few records a second. A topic of three
    copies on three brokers gives each broker a replica of every partition.
    """

    def __init__(self, program: Path, partitions: int) -> None:
        self._program = program
        self._partitions = partitions
        self._p99_ms: dict[str, float] = {}

    def p50(self, trio: Trio, name: str, seconds: float) -> float:
        """The median latency in ms, from the time when a record was due until the consumer has it."""
        trio.create(name, self._partitions, len(NODES))
        options = {
            "size": RECORD_BYTES,
            "rate": STEADY_BYTES_S // RECORD_BYTES,
            "partitions": self._partitions,
            "warmup": SETTLED_S,
            "seconds": max(seconds, STEADY_S),
            "producer:acks": "all",
        }
        try:
            found = run_load(self._program, "latency", trio.bootstrap, name, options)
        finally:
            trio.delete(name)
        self._p99_ms[trio.name] = found.percentile_us("read", "p99") / 1000
        return found.percentile_us("read", "p50") / 1000

    def p99(self, trio: Trio, name: str, seconds: float) -> float:
        """The 99th percentile in ms of the run that `p50` made."""
        assert trio.name in self._p99_ms, "it was not measured"
        return self._p99_ms[trio.name]


def read_by_as_many(program: Path, partitions: int) -> Measure:
    """The records a second of as many consumers at once as there are partitions, one partition each."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, partitions, len(NODES))
        options: dict[str, object] = {"size": RECORD_BYTES, "partitions": partitions}
        written = {**options, "seconds": 60, "limit": LIMIT_BYTES, "producer:acks": "all"}
        acked = run_load(program, "produce", trio.bootstrap, name, written).raw["acked"]
        with ThreadPoolExecutor(partitions) as pool:
            each = [{**options, "seconds": 60, "only": number} for number in range(partitions)]
            runs = list(pool.map(lambda one: run_load(program, "consume", trio.bootstrap, name, one), each))
        read = sum(run.raw["read"] for run in runs)
        assert read == acked, f"{read} of {acked} were read"
        trio.delete(name)
        return float(read / max(run.raw["read_span_s"] for run in runs))

    return measure


def cells_by_partitions(program: Path) -> list[Cell]:
    """Latency over hundreds of partitions, and throughput over a few with as many consumers."""
    found = []
    for count in STEADY_PARTITIONS:
        steady = SentToRead(program, count)
        name = f"5 MB/s of 1 KB over {count:,} partitions a broker, RF 3, acks=all, sent to read"
        found += [
            Cell(f"{name}, p50", "ms", "lower", steady.p50, quick=False),
            Cell(f"{name}, p99", "ms", "lower", steady.p99, quick=False),
        ]
    for count in READ_PARTITIONS:
        over = f"1 KB over {count} partition{'s' * (count > 1)}, RF 3"
        found += [
            Cell(
                f"{over}, one producer, acks=all",
                "records/s",
                "higher",
                throughput(program, RECORD_BYTES, len(NODES), "all", count),
                quick=False,
            ),
            Cell(f"{over}, as many consumers", "records/s", "higher", read_by_as_many(program, count), quick=False),
        ]
    return found
