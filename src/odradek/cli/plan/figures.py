"""Measurements of Odradek, and the pages with them: `make bench` and `make bench-cluster` write these pages."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

SINGLE, CLUSTER = "docs/benchmarks.md", "docs/benchmarks-cluster.md"
# Three nodes, their generator and Apache Kafka's three nodes, which then do nothing, share so many cores.
CORES = 2
COPIES = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a page: the name of the row, the unit, and the value."""

    page: str
    row: str
    value: float
    unit: str = ""

    @property
    def cited(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.row}: {self.value:,.6g}{unit} ({self.page})"


def _produced(size: int, records_s: float) -> Figure:
    return Figure(CLUSTER, f"produce {size:,} B, RF 3, acks=all", records_s, "records/s")


# By size of a record in bytes, in order.
REPLICATED = {
    128: _produced(128, 1_340_333),
    1_024: _produced(1_024, 254_917),
    10_240: _produced(10_240, 13_726),
    102_400: _produced(102_400, 1_931),
    527_360: _produced(527_360, 304),
}
CONSUME_CPU_S_PER_GB = Figure(SINGLE, "consume 1 KB", 0.39)
LATENCY_P99_MS = Figure(CLUSTER, "500 records of 1 KB per second, RF 3, acks=all, acknowledged, p99", 25.8, "ms")
FAILOVER_S = Figure(CLUSTER, "kill -9 of a leader to the next acknowledgement", 0.0504, "s")
DISK_PER_BYTE = Figure(CLUSTER, "bytes on disk for a byte of 1 KB records, RF 3", 3.03)
CATCH_UP_MB_S = Figure(CLUSTER, "a follower catches up 200 MiB, its start included", 258.0, "MB/s")
MEMORY_MIB = Figure(CLUSTER, "memory of three nodes after load", 191, "MiB")
FIGURES = (
    *REPLICATED.values(),
    LATENCY_P99_MS,
    FAILOVER_S,
    DISK_PER_BYTE,
    CATCH_UP_MB_S,
    MEMORY_MIB,
)


def nearest(size: int) -> Figure:
    """The measurement with the nearest record size."""
    return REPLICATED[min(REPLICATED, key=lambda known: abs(math.log(known) - math.log(max(1, size))))]


def is_measured(size: int) -> bool:
    """Whether the record size is between two measured ones."""
    return min(REPLICATED) <= size <= max(REPLICATED)


def records_per_core(size: int) -> float:
    """Records per second and core with three replicas; interpolated between measured sizes on a logarithmic scale."""
    sizes = list(REPLICATED)
    place = min(max(1, bisect.bisect_left(sizes, size)), len(sizes) - 1)
    low, high = sizes[place - 1], sizes[place]
    if size <= sizes[0]:
        return REPLICATED[sizes[0]].value / CORES
    if size >= sizes[-1]:
        # As many bytes as with the largest.
        return REPLICATED[sizes[-1]].value * sizes[-1] / size / CORES
    share = (math.log(size) - math.log(low)) / (math.log(high) - math.log(low))
    logs = math.log(REPLICATED[low].value) * (1 - share) + math.log(REPLICATED[high].value) * share
    return math.exp(logs) / CORES
