"""Computes brokers, partitions, disks, memory, network and buffers from the load of a topic. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from odradek.cli.plan import figures

# Of a core, while as many brokers are away as are to be outlived.
BUSY = 0.6
# Of a disk.
FULL = 0.7
# Of a network interface.
WIRE = 0.5
# One consumer reads all of a partition, which is copied as a whole when it moves.
PARTITION_BYTES_S = 10e6
MOST_PARTITIONS = 4_000
# Readers that are so far behind are still served from memory.
CACHED_S = 60
LEAST_MEMORY = 2 << 30
# broker.session.timeout.ms: a broker that does not answer is counted out after it, and producers hold records so long.
SESSION_S = 9.0
BATCH_FLOOR = 16_384


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of a topic.

    Attributes:
        size: bytes of an event; rate: events a second, now; growth: of the rate, as a factor.
        latency_ms: from the event to its acknowledgement.
        retention_s: how long events are kept.
        outlive: how many brokers may fail at once, without a record lost or a producer stopped.
        readers: groups that read everything; consumer_rate: events a second that one consumer gets done.
        compression: bytes of events for a byte on the wire and on disk.
    """

    size: int
    rate: float
    latency_ms: float = 100.0
    retention_s: float = 7 * 86_400.0
    growth: float = 1.0
    outlive: int = 1
    readers: int = 2
    consumer_rate: float = 10_000.0
    compression: float = 1.0

    @property
    def events_s(self) -> float:
        return self.rate * self.growth

    @property
    def bytes_s(self) -> float:
        """Compressed bytes that producers send per second."""
        return self.events_s * self.size / self.compression


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the result.

    Attributes:
        why: its derivation; sure: "arithmetic", "measured", "scaled" (from what was measured), "rule" (of thumb) or
            "doubtful".
    """

    what: str
    amount: str
    why: str
    sure: str


@dataclass(frozen=True, slots=True)
class Sizing:
    """The result, in bytes, seconds and numbers."""

    brokers: int
    controllers: int
    copies: int
    min_isr: int
    partitions: int
    disk_bytes: float
    disk_bytes_s: float
    memory_bytes: float
    network_in: float
    network_out: float
    cores: float
    in_flight_bytes: float
    buffer_bytes: float
    batch_bytes: int


def plan(demand: Demand) -> Sizing:
    """Compute the sizing for a load.

    With as many brokers away as are to be outlived, min.insync.replicas of each partition are there: a record that was
    acknowledged is on one more broker than may fail, and producers go on.
    """
    min_isr = demand.outlive + 1
    copies = 2 * demand.outlive + 1
    cores = _cores(demand, copies)
    brokers = max(copies, math.ceil(cores / BUSY) + demand.outlive)
    left = max(1, brokers - demand.outlive)
    partitions = _partitions(demand, brokers)
    # Where enough brokers are left to hold every copy, theirs are made again there.
    holding = left if left >= copies else brokers
    on_disk = demand.bytes_s * demand.retention_s * figures.DISK_PER_BYTE.value / figures.COPIES * copies
    written = demand.bytes_s * copies / brokers
    in_flight = demand.rate * demand.growth * demand.size * demand.latency_ms / 1000
    return Sizing(
        brokers=brokers,
        controllers=max(3, 2 * demand.outlive + 1) if demand.outlive else 1,
        copies=copies,
        min_isr=min_isr,
        partitions=partitions,
        disk_bytes=on_disk / holding / FULL,
        disk_bytes_s=written,
        memory_bytes=max(LEAST_MEMORY, figures.MEMORY_MIB.value / 3 * 2**20 * 4 + written * CACHED_S),
        network_in=demand.bytes_s * copies / left / WIRE,
        network_out=demand.bytes_s * (copies - 1 + demand.readers) / left / WIRE,
        cores=cores,
        in_flight_bytes=in_flight,
        buffer_bytes=max(in_flight, demand.events_s * demand.size * SESSION_S if copies > 1 else 0.0),
        batch_bytes=_batch_bytes(demand, partitions),
    )


def _cores(demand: Demand, copies: int) -> float:
    """The cores that brokers use to write all replicas, and to serve consumers."""
    writing = demand.events_s / figures.records_per_core(demand.size) * copies / figures.COPIES
    return writing + demand.bytes_s / 1e9 * figures.CONSUME_CPU_S_PER_GB.value * demand.readers


def _partitions(demand: Demand, brokers: int) -> int:
    """The number of partitions for the consumers and the bytes, a multiple of the number of brokers."""
    needed = max(demand.events_s / demand.consumer_rate, demand.bytes_s / PARTITION_BYTES_S)
    return math.ceil(max(1, math.ceil(needed)) / brokers) * brokers


def _batch_bytes(demand: Demand, partitions: int) -> int:
    """The bytes of a partition in a tenth of the latency, as a power of two."""
    comes = demand.events_s * demand.size * demand.latency_ms / 1000 / 10 / partitions
    return min(1 << 20, max(BATCH_FLOOR, 1 << math.ceil(math.log2(max(1.0, comes, demand.size)))))


def lines(demand: Demand, sizing: Sizing) -> Iterator[Line]:
    """The lines of the result, each with its derivation."""
    measured = figures.nearest(demand.size)
    scaled = "scaled" if figures.is_measured(demand.size) else "doubtful"
    yield Line(
        "copies",
        f"{sizing.copies}, min.insync.replicas {sizing.min_isr}",
        f"{demand.outlive} may fail, and {sizing.min_isr} must have a record",
        "arithmetic",
    )
    yield Line(
        "brokers",
        str(sizing.brokers),
        f"{sizing.cores:.2f} cores busy at {BUSY:.0%}, {demand.outlive} away; one copy each. {measured.cited}, "
        f"on {figures.CORES} cores that all nodes and the generator share",
        scaled,
    )
    yield Line("controllers", str(sizing.controllers), "a majority outlives the others", "arithmetic")
    yield Line(
        "partitions",
        str(sizing.partitions),
        f"{demand.consumer_rate:,.0f} events/s a consumer, {PARTITION_BYTES_S / 1e6:g} MB/s a partition, "
        "as many on each broker",
        "rule",
    )
    yield Line(
        "disk per broker",
        f"{shown_bytes(sizing.disk_bytes)}, {shown_bytes(sizing.disk_bytes_s)}/s",
        f"retention x copies / brokers left, {FULL:.0%} full. {figures.DISK_PER_BYTE.cited}",
        "arithmetic",
    )
    yield Line(
        "memory per broker",
        shown_bytes(sizing.memory_bytes),
        f"four times what a node took, and {CACHED_S} s of records for readers. {figures.MEMORY_MIB.cited}",
        "rule",
    )
    yield Line(
        "network per broker",
        f"{sizing.network_in * 8 / 1e9:.2g} Gbit/s in, {sizing.network_out * 8 / 1e9:.2g} out",
        f"copies and {demand.readers} readers over the brokers left, {WIRE:.0%} busy",
        "arithmetic",
    )
    yield Line(
        "producers' buffers",
        f"at least {shown_bytes(sizing.in_flight_bytes)}, better {shown_bytes(sizing.buffer_bytes)}",
        f"size x rate x latency; {SESSION_S:g} s where a broker falls silent. {figures.FAILOVER_S.cited}",
        "arithmetic",
    )
    yield Line(
        "latency",
        f"{demand.latency_ms:g} ms wanted",
        f"{figures.LATENCY_P99_MS.cited}, on a machine that all share",
        "measured" if demand.latency_ms >= figures.LATENCY_P99_MS.value else "doubtful",
    )


def warnings(demand: Demand, sizing: Sizing) -> Iterator[str]:
    """The risks of the plan."""
    if demand.latency_ms < figures.LATENCY_P99_MS.value:
        yield f"{demand.latency_ms:g} ms is less than was measured: run `odradek perf latency` on your machines first"
    if not figures.is_measured(demand.size):
        yield f"events of {demand.size:,} bytes were not measured: run `odradek perf produce --size {demand.size}`"
    if sizing.partitions * sizing.copies > MOST_PARTITIONS * sizing.brokers:
        yield f"more than {MOST_PARTITIONS:,} replicas a broker: give each consumer more to do, or take more brokers"
    if not demand.outlive:
        yield "nothing is outlived: a broker that is away stops its partitions, a disk that fails takes its records"
    again_s = sizing.disk_bytes * FULL / (figures.CATCH_UP_MB_S.value * 1e6)
    if again_s > 3600:
        yield (
            f"a new broker copies for {again_s / 3600:.1f} h until it has its share "
            f"({figures.CATCH_UP_MB_S.cited}), and that much longer one failure more is too many"
        )


def shown_bytes(count: float) -> str:
    """A size as text, as `3.1 MB`: powers of a thousand."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
