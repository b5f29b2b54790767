"""`make bench-cluster`: three nodes of Apache Kafka and three of Odradek, cell by cell in interleaved rounds.

Writes docs/benchmarks-cluster.md; `--quick` prints a first look and writes nothing. bench/notes-cluster.md explains the
numbers.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from bench.brokers import machine
from bench.cluster_cells import (
    Cell,
    catch_up,
    clean_stop,
    disk_price,
    election,
    failover,
    latency,
    many_failovers,
    many_partitions,
    preferred_election,
    published_shape,
    rolling_restart,
    throughput,
)
from bench.cluster_moves import ReturningDisk, moved_partitions, network_price, wait_while_moved
from bench.cluster_partitions import cells_by_partitions
from bench.generator import build
from bench.report import number
from bench.trios import FIVE, KAFKA_HEAP, Trio, kafka_trio, our_trio
from tests.interop.librdkafka_suite import VERSION as LIBRDKAFKA_VERSION
from tests.interop.packages import MissingError
from tests.support.nodes.apache_kafka import VERSION as KAFKA_VERSION
from tests.support.nodes.apache_kafka import KafkaUnavailableError, kafka_libraries

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-cluster.md"
NOTES = Path(__file__).with_name("notes-cluster.md")
SIZES = (128, 1024, 10_240, 102_400, 515 * 1024)
MISSED_BYTES = 200 << 20
RETURNED_BYTES, NEWS_BYTES = 2_000_000_000, 10_000_000
WARM_UP_S = 5.0
# The share of the time for three nodes; the rest is for the five nodes.
THREE_NODES_SHARE = 0.7


@dataclass(slots=True)
class Row:
    """A cell's rounds, each (Apache Kafka, Odradek), made one right after the other."""

    cell: Cell
    rounds: list[tuple[float, float]] = field(default_factory=list)

    def line(self) -> str:
        """The row as Markdown; a ratio above 1 is better for Odradek in every row."""
        kafka, ours = (number(statistics.median(each[which] for each in self.rounds)) for which in (0, 1))
        pairs = [(b, a) if self.cell.better == "lower" else (a, b) for a, b in self.rounds]
        ratios = [good / max(base, 1e-9) for base, good in pairs]
        spread = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        return f"| {self.cell.name} | {self.cell.unit} | {kafka} | {ours} | {spread} |"


def cells(program: Path) -> list[Cell]:
    """All rows, in the order of the table."""
    found = [
        Cell(
            f"produce {size:,} B, RF 3, acks=all",
            "records/s",
            "higher",
            throughput(program, size, 3, "all"),
            size != 10_240,
        )
        for size in SIZES
    ]
    found.append(Cell("produce 1,024 B, RF 1, acks=all", "records/s", "higher", throughput(program, 1024, 1, "all")))
    for percentile in ("p50", "p99"):
        for copies in (1, 3):
            name = f"500 records of 1 KB per second, RF {copies}, acks=all, acknowledged, {percentile}"
            found.append(Cell(name, "ms", "lower", latency(program, 1024, copies, percentile), copies == 3))
    returning = ReturningDisk(RETURNED_BYTES, NEWS_BYTES)
    found += [
        Cell("bytes on disk for a byte of 1 KB records, RF 1", "", "lower", disk_price(1), False),
        Cell("bytes on disk for a byte of 1 KB records, RF 3", "", "lower", disk_price(3), False),
        Cell("bytes over the network for a byte of 1 KB records, RF 1", "", "lower", network_price(1), False),
        Cell("bytes over the network for a byte of 1 KB records, RF 3", "", "lower", network_price(3), False),
        Cell("kill -9 of a leader to the next acknowledgement", "s", "lower", failover(of_controller=False)),
        Cell("the same, the active controller on that node", "s", "lower", failover(of_controller=True)),
        Cell("clean stop of a leader, longest wait", "ms", "lower", clean_stop),
        Cell("rolling restart of all three, longest wait", "ms", "lower", rolling_restart),
        Cell("leadership handed back, longest wait", "ms", "lower", preferred_election),
        Cell("kill -9 of the active controller to the next topic", "s", "lower", election),
        Cell(
            f"a follower catches up {MISSED_BYTES >> 20} MiB, its start included",
            "MB/s",
            "higher",
            catch_up(MISSED_BYTES),
        ),
        Cell(
            "a disk of 2 GB is back that lacks 10 MB, until it is in sync, start and recovery included",
            "s",
            "lower",
            returning.seconds,
            False,
            once=True,
        ),
        Cell("what that took over the network", "MB", "lower", returning.megabytes, False, once=True),
        Cell(
            "12 producers, 24 consumers, 24 partitions, 128 B, RF 1, acks=1",
            "records/s",
            "higher",
            published_shape(program),
            False,
        ),
        Cell("1,000 partitions of three copies, until all are in sync", "s", "lower", many_partitions(1000), False),
        Cell(
            "kill -9 of one of three with 1,000 partitions, until all are led",
            "s",
            "lower",
            many_failovers(1000),
            False,
        ),
        *cells_by_partitions(program),
    ]
    return found


def five_cells(program: Path) -> list[Cell]:
    """The cost of a topic of five copies; measured on five nodes of either broker, which live for these rows alone."""
    return [
        Cell("produce 1,024 B, RF 5, acks=all", "records/s", "higher", throughput(program, 1024, 5, "all"), False),
        *(
            Cell(
                f"500 records of 1 KB per second, RF 5, acks=all, acknowledged, {percentile}",
                "ms",
                "lower",
                latency(program, 1024, 5, percentile),
                False,
            )
            for percentile in ("p50", "p99")
        ),
        Cell("bytes on disk for a byte of 1 KB records, RF 5", "", "lower", disk_price(5), False),
        Cell("bytes over the network for a byte of 1 KB records, RF 5", "", "lower", network_price(5), False),
        Cell(
            "1,000 partitions: two of three copies of each moved to other brokers of five",
            "s",
            "lower",
            moved_partitions(1000),
            False,
            once=True,
        ),
        Cell(
            "the same, longest wait of a producer to one of them",
            "ms",
            "lower",
            wait_while_moved(1000),
            False,
            once=True,
        ),
    ]


class Rounds:
    """The rounds of one part: as many as are asked for, but none that would not end in time after the first."""

    def __init__(self, count: int, ends_s: float) -> None:
        """`ends_s` is of the monotonic clock."""
        self._count = count
        self._ends_s = ends_s

    def __iter__(self) -> Iterator[int]:
        begun = time.monotonic()
        for index in range(1, self._count + 1):
            now = time.monotonic()
            if index > 1 and now + (now - begun) / (index - 1) > self._ends_s:
                print(f"  {index - 1} of {self._count} rounds: there is no time for more", file=sys.stderr, flush=True)
                return
            yield index


def on_three_nodes(program: Path, rows: list[Row], rounds: Rounds, seconds: float) -> list[str]:
    """Six nodes; returns the rows of their memory."""
    if not rows:
        return []
    with tempfile.TemporaryDirectory(prefix="odradek-bench-cluster-") as folder:
        trios = [kafka_trio(Path(folder)), our_trio(Path(folder))]
        try:
            for trio in trios:
                trio.start()
            idle = [trio.memory_bytes() for trio in trios]
            for trio in trios:  # a JVM is slow until it has compiled what it runs
                throughput(program, 1024, 3, "all")(trio, "warm-up", WARM_UP_S)
            for index in rounds:
                one_round(trios, rows, index, seconds)
            loaded = [trio.memory_bytes() for trio in trios]
        finally:
            for trio in trios:
                trio.stop()
    return [_memory("memory of three nodes, idle", idle), _memory("memory of three nodes after load", loaded)]


def on_five_nodes(program: Path, rows: list[Row], rounds: Rounds, seconds: float) -> None:
    """Ten nodes, and so a part of its own."""
    if not rows:
        return
    with tempfile.TemporaryDirectory(prefix="odradek-bench-fives-") as folder:
        fives = [kafka_trio(Path(folder), FIVE), our_trio(Path(folder), FIVE)]
        try:
            for each in fives:
                each.start()
                throughput(program, 1024, 5, "all")(each, "warm-up", WARM_UP_S)
            for index in rounds:
                one_round(fives, rows, index, seconds)
        except (TimeoutError, KafkaException) as error:
            print(f"  rows of RF 5 are left out: {error}", file=sys.stderr, flush=True)
        finally:
            for each in fives:
                each.stop()


def one_round(trios: list[Trio], rows: list[Row], index: int, seconds: float) -> None:
    """Run every cell once against each cluster; the first one alternates."""
    for position, row in enumerate(rows):
        if row.cell.once and index > 1:
            continue
        seen: dict[str, float] = {}
        for trio in trios if index % 2 else reversed(trios):
            try:
                seen[trio.name] = row.cell.measure(trio, f"bench-{index}-{position}", seconds)
            except (TimeoutError, AssertionError, KafkaException) as error:
                print(f"  round {index}  {row.cell.name}: {trio.name} failed: {error}", file=sys.stderr, flush=True)
                trio.heal()
        if len(seen) < len(trios):
            continue
        row.rounds.append((seen["Apache Kafka"], seen["Odradek"]))
        kafka, ours = row.rounds[-1]
        print(f"  round {index}  {row.cell.name:<66} {kafka:>12,.2f} {ours:>12,.2f}", file=sys.stderr, flush=True)


def page(rows: Sequence[Row], memory: Sequence[str], hardware: Mapping[str, str], rounds: int, took_s: float) -> str:
    """The whole of docs/benchmarks-cluster.md."""
    lines = [
        "# Three nodes, beside Apache Kafka's",
        "",
        "Written by `make bench-cluster`. Three nodes of either broker run on the same machine all the time, each",
        f"broker and controller in one; rounds: {rounds}; in each a cell is measured against both clusters, one right",
        "after the other, and the first one alternates. A ratio above 1 means that Odradek does better; it is taken",
        "within a round, and the table shows the median of the rounds. Rows of 2 GB and of 1,000 partitions that move",
        "are measured in the first round alone.",
        "",
        f"- measured {datetime.date.today().isoformat()}, in {took_s / 60:.0f} minutes",
        f"- Odradek {importlib.metadata.version('odradek')}, Apache Kafka {KAFKA_VERSION} with {KAFKA_HEAP} each,",
        f"  librdkafka {LIBRDKAFKA_VERSION}; default settings, min.insync.replicas 2 where there are three copies",
        *(f"- {name}: {value}" for name, value in hardware.items()),
        "- generator and all six nodes share the processor; rows of RF 5: all ten",
        "",
        "| cell | unit | Apache Kafka | Odradek | ratio, median (lowest to highest) |",
        "|---|---|---|---|---|",
        *(row.line() for row in rows if row.rounds),
        *memory,
    ]
    if NOTES.exists():
        lines += ["", NOTES.read_text().strip()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parse the command line and measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=18, help="no second or third round that would end after that")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run of the load generator")
    parser.add_argument("--quick", action="store_true", help="one round of the most telling cells; writes nothing")
    parser.add_argument("--cells", default="", help="only cells whose name contains this")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks-cluster.md (the full form does)")
    options = parser.parse_args()
    try:
        kafka_libraries()
        program = build()
    except (KafkaUnavailableError, MissingError) as error:
        print(f"bench-cluster: {error}", file=sys.stderr)
        return 1
    rows, rows_of_five = (
        [Row(cell) for cell in known if options.cells in cell.name and (cell.quick or not options.quick)]
        for known in (cells(program), five_cells(program))
    )
    count = 1 if options.quick else options.rounds
    started = time.monotonic()
    limit_s = options.minutes * 60
    memory = on_three_nodes(program, rows, Rounds(count, started + THREE_NODES_SHARE * limit_s), options.seconds)
    on_five_nodes(program, rows_of_five, Rounds(count, started + limit_s), options.seconds)
    made = max((len(row.rounds) for row in (*rows, *rows_of_five)), default=0)
    text = page([*rows, *rows_of_five], memory, machine(), made, time.monotonic() - started)
    print(text)
    if options.write or not (options.quick or options.cells):
        PAGE.write_text(text)
    return 0


def _memory(name: str, both: Sequence[int]) -> str:
    kafka, ours = (each / 2**20 for each in both)
    return f"| {name} | MiB | {kafka:.0f} | {ours:.0f} | **{kafka / ours:.2f}** |"


if __name__ == "__main__":
    sys.exit(main())
