"""`python -m bench.groups_bench`: groups and transactions of both brokers, cell by cell in interleaved rounds.

Writes docs/benchmarks-groups.md; `--quick` prints a first look and writes nothing. bench/notes-groups.md explains the
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import libversion

from bench.brokers import KAFKA_HEAP, Contestant, machine, start_contestants
from bench.group_clients import (
    AUTO_COMMIT_MS,
    commits_async,
    commits_auto,
    commits_sync,
    commits_sync_1000,
    copy_exactly_once,
    fill,
    transactions,
)
from bench.group_members import HEARTBEAT_S, rebalance_s
from bench.report import number
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import VERSION as KAFKA_VERSION
from tests.support.nodes.apache_kafka import KafkaUnavailableError, kafka_libraries

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-groups.md"
NOTES = Path(__file__).with_name("notes-groups.md")
SHARED = "shared"
PARTITIONS = 100
READ = "read"
READ_RECORDS = 400_000
WRITTEN = "written"
MEMBER_COUNTS = (2, 20, 100)

# (broker, an unused name, seconds to go on for) -> the measured number.
Measure = Callable[[Contestant, str, float], float]


@dataclass(frozen=True)
class Cell:
    """One row of the table; `better` is higher or lower."""

    name: str
    unit: str
    better: str
    measure: Measure


@dataclass(slots=True)
class Row:
    """A cell's rounds, each (Apache Kafka, Odradek), made one right after the other."""

    cell: Cell
    rounds: list[tuple[float, float]] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """The ratios of the rounds; above 1 is better for Odradek in every cell."""
        if self.cell.better == "lower":
            return [kafka / max(ours, 1e-9) for kafka, ours in self.rounds]
        return [ours / max(kafka, 1e-9) for kafka, ours in self.rounds]

    def line(self) -> str:
        """The row as Markdown."""
        ratios = self.ratios()
        kafka, ours = (number(statistics.median(each[which] for each in self.rounds)) for which in (0, 1))
        spread = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        return f"| {self.cell.name} | {self.cell.unit} | {kafka} | {ours} | {spread} |"


def _rebalance(count: int, protocol: str, *, at_once: bool = False) -> Measure:
    def measure(contestant: Contestant, name: str, seconds: float) -> float:
        port = contestant.broker.port
        return 1000 * rebalance_s(port, name, SHARED, PARTITIONS, count, protocol, at_once=at_once)

    return measure


def _commits(mode: Callable[[str, str, str, float], float]) -> Measure:
    return lambda contestant, name, seconds: mode(contestant.bootstrap, READ, name, seconds)


def _transactions(records: int) -> Measure:
    def measure(contestant: Contestant, name: str, seconds: float) -> float:
        return transactions(contestant.bootstrap, WRITTEN, name, seconds, records)

    return measure


def _copy(contestant: Contestant, name: str, seconds: float) -> float:
    return copy_exactly_once(contestant.bootstrap, READ, WRITTEN, name, seconds)


def cells(member_counts: Sequence[int] = MEMBER_COUNTS) -> list[Cell]:
    """All rows, in the order of the table."""
    found = [
        Cell(f"rebalance, {count} members, {protocol} protocol", "ms", "lower", _rebalance(count, protocol))
        for protocol in ("classic", "consumer")
        for count in member_counts
    ]
    found += [
        Cell(f"rebalance, {count} members, no interval", "ms", "lower", _rebalance(count, "consumer", at_once=True))
        for count in member_counts
    ]
    found += [
        Cell(f"commit, auto (every {AUTO_COMMIT_MS} ms)", "commits/s", "higher", _commits(commits_auto)),
        Cell("commit, async, each record", "commits/s", "higher", _commits(commits_async)),
        Cell("commit, sync, each record", "commits/s", "higher", _commits(commits_sync)),
        Cell("commit, sync, every 1,000 records", "commits/s", "higher", _commits(commits_sync_1000)),
        Cell("transactions of 1 record", "transactions/s", "higher", _transactions(1)),
        Cell("transactions of 100 records", "transactions/s", "higher", _transactions(100)),
        Cell("exactly-once copy", "records/s", "higher", _copy),
    ]
    return found


def prepare(contestant: Contestant) -> None:
    """The topics, and the records that are read."""
    create_topic(contestant.bootstrap, SHARED, PARTITIONS)
    create_topic(contestant.bootstrap, READ, 1)
    create_topic(contestant.bootstrap, WRITTEN, 1)
    fill(contestant.bootstrap, READ, READ_RECORDS)


def one_round(contestants: list[Contestant], rows: list[Row], index: int, seconds: float) -> None:
    """Run every cell once against each broker; the first one alternates. Round 0 warms both up and is not kept."""
    for position, row in enumerate(rows):
        seen: dict[str, float] = {}
        for contestant in contestants if index % 2 else reversed(contestants):
            seen[contestant.name] = row.cell.measure(contestant, f"bench-{index}-{position}", seconds)
        if index > 0:
            row.rounds.append((seen["Apache Kafka"], seen["Odradek"]))
            kafka, ours = row.rounds[-1]
            print(f"  round {index}  {row.cell.name:<48} {kafka:>12,.1f} {ours:>12,.1f}", file=sys.stderr, flush=True)


def page(rows: Sequence[Row], hardware: Mapping[str, str], rounds: int, seconds: float, took_s: float) -> str:
    """The whole of docs/benchmarks-groups.md."""
    lines = [
        "# Groups and transactions, beside Apache Kafka",
        "",
        f"Written by `make bench-groups`. Both brokers run on the same machine, one node each; {rounds} rounds after",
        "one that warms up; in each round a cell is measured against both, one right after the other, and the",
        "first one alternates. A ratio above 1 means that Odradek does better; it is taken within a round; the table",
        "shows the median of the rounds.",
        "",
        f"- measured {datetime.date.today().isoformat()}, in {took_s / 60:.1f} minutes, {seconds:.1f} s a run",
        f"- Odradek {importlib.metadata.version('odradek')}, Apache Kafka {KAFKA_VERSION} with a heap of {KAFKA_HEAP},",
        f"  librdkafka {libversion()[0]} under confluent-kafka; default settings, replication factor 1",
        *(f"- {name}: {value}" for name, value in hardware.items()),
        "",
        "| cell | unit | Apache Kafka | Odradek | ratio, median (lowest to highest) |",
        "|---|---|---|---|---|",
        *(row.line() for row in rows),
        "",
        "- *Rebalance*: from the first request of one more member until all own an equal part of",
        f"  {PARTITIONS} partitions. Members are coroutines with a heartbeat every {HEARTBEAT_S * 1000:.0f} ms (a real",
        "  client's default is 3 to 5 seconds, which would be all that one sees). *No interval*: the consumer protocol",
        "  in groups whose `consumer.assignment.interval.ms` is 0.",
        "- *Commit*: acknowledged commits of one consumer over records that are there already.",
        "- *Transactions*: one producer, one after the other, each with a commit that is waited for.",
        "- *Copy*: one process that reads, writes and commits its offsets, up to 1,000 records of 100 B at a time.",
    ]
    if NOTES.exists():
        lines += ["", NOTES.read_text().strip()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parse the command line and measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.groups_bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run that is measured")
    parser.add_argument("--quick", action="store_true", help="one round, up to 20 members; does not touch the docs")
    parser.add_argument("--cells", default="", help="only cells whose name contains this")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks-groups.md (the full form does)")
    options = parser.parse_args()
    try:
        kafka_libraries()
    except KafkaUnavailableError as error:
        print(f"bench-groups: {error}", file=sys.stderr)
        return 1
    wanted = cells(MEMBER_COUNTS[:2] if options.quick else MEMBER_COUNTS)
    rows = [Row(cell) for cell in wanted if options.cells in cell.name]
    rounds = 1 if options.quick else options.rounds
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-groups-") as folder:
        contestants = start_contestants(Path(folder))
        try:
            for contestant in contestants:
                prepare(contestant)
            for index in range(rounds + 1):
                one_round(contestants, rows, index, options.seconds)
        finally:
            for contestant in contestants:
                contestant.broker.stop()
    text = page(rows, machine(), rounds, options.seconds, time.monotonic() - started)
    print(text)
    if options.write or not (options.quick or options.cells):
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
