"""`make bench-log`: the log beside Apache Kafka's, both brokers in turn over the very same files.

Writes docs/benchmarks-log.md; `--quick` prints a first look at less data and writes nothing. bench/notes-log.md
explains the numbers.

The whole run takes `--minutes`, 11 by default: each part has a share, in which it runs as many rounds as fit, at least
one and at most three. The benchmark waits a minute at most for a busy machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench import many_partitions as many
from bench.brokers import KAFKA_HEAP, machine
from bench.compaction_bench import measure as measure_compaction
from bench.compaction_bench import table as compaction_table
from bench.generator import build, run_load
from bench.one_home import KAFKA, OURS, OneHome
from bench.report import number
from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.interop.packages import MissingError
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import VERSION as KAFKA_VERSION
from tests.support.nodes.apache_kafka import KafkaUnavailableError, kafka_libraries

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-log.md"
NOTES = Path(__file__).with_name("notes-log.md")
LARGE, WRITTEN = "large", "written"
RECORD_BYTES = 1024
BATCH_RECORDS = 60
SETTINGS: Mapping[str, object] = {"log.segment.delete.delay.ms": 0, "auto.create.topics.enable": "false"}
WHO = (KAFKA, OURS)
# The share of each part in the minutes of a run.
SHARES = {"append": 0.12, "large": 0.32, "many": 0.36, "compaction": 0.2}
QUIET_LOOK_S = 2.0


class Rounds:
    """The rounds of one part: as many as fit its share of the time, one at least."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds

    def __iter__(self) -> Iterator[int]:
        began, longest = time.monotonic(), 0.0
        for index in range(self._most):
            round_began = time.monotonic()
            if index and round_began - began + longest > self._seconds:
                return
            yield index
            longest = max(longest, time.monotonic() - round_began)


@dataclass(slots=True)
class Row:
    """One cell; its rounds are (Apache Kafka, Odradek), one right after the other."""

    name: str
    unit: str
    higher_is_better: bool = False
    rounds: list[tuple[float, float]] = field(default_factory=list)

    def line(self) -> str:
        """The row as Markdown; a ratio above 1 is better for Odradek."""
        kafka, ours = (
            _formatted(statistics.median(each[which] for each in self.rounds), self.unit) for which in (0, 1)
        )
        pairs = [pair if self.higher_is_better else (pair[1], pair[0]) for pair in self.rounds]
        ratios = [good / max(base, 1e-9) for base, good in pairs]
        spread = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        return f"| {self.name} | {self.unit} | {kafka} | {ours} | {spread} |"


def _formatted(value: float, unit: str) -> str:
    return f"more than {number(value)}" if unit == "s" and value >= many.GIVE_UP_S else number(value)


class Table:
    """Rows in the order in which they were first measured."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def add(self, name: str, unit: str, seen: Mapping[str, float], *, higher_is_better: bool = False) -> None:
        row = self.rows.setdefault(name, Row(name, unit, higher_is_better))
        row.rounds.append((seen[KAFKA], seen[OURS]))
        print(f"  {name:<58} {seen[KAFKA]:>9.2f} {seen[OURS]:>9.2f} {unit}", file=sys.stderr, flush=True)


def fill(directory: Path, size_bytes: int) -> tuple[int, int]:
    """Write so much into an empty partition of a node that does not run.

    Returns:
        The base offset of the active segment, and its size in bytes.
    """
    disk, payload = RealDisk(workers=1), Random(7).randbytes(RECORD_BYTES)
    log = open_log(FileCache(disk), directory, (LARGE, 0), LogConfig(), now_ms=0)
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(None, payload, (), now_ms) for _ in range(BATCH_RECORDS)])
    header = BatchHeader.read(batch)
    while log.size_bytes < size_bytes:
        log.append_as_leader([batch] * 10, [header] * 10, leader_epoch=0, now_ms=now_ms)
    close_log(log)
    disk.close()
    return log.segments[-1].base_offset, log.segments[-1].size_bytes


def one_large_log(home: OneHome, table: Table, rounds: Rounds, size_bytes: int) -> None:
    """Starts over a log of that size in all the ways, and reading it."""
    home.kafka.start()
    create_topic(home.bootstrap, LARGE, retention_ms=-1)
    home.stop()
    active_from, _ = fill(home.data_dir / f"{LARGE}-0", size_bytes)
    size = f"{size_bytes / 1e9:.1f} GB"
    for index in rounds:
        times: list[dict[str, float]] = [{} for _ in range(5)]
        clean, killed, whole, warm, cold = times
        for who in WHO if index % 2 else reversed(WHO):
            clean[who] = home.seconds_to_serve(who, LARGE)
            home.kill()
            home.believe_up_to(LARGE, active_from)
            killed[who] = home.seconds_to_serve(who, LARGE)
            options = {"size": RECORD_BYTES, "seconds": 60, "warmup": 0, "partitions": 1}
            run_load(home.program, "consume", home.bootstrap, LARGE, options)  # all is in the page cache
            for seen, is_cold in ((warm, False), (cold, True)):
                if is_cold:
                    home.drop_from_page_cache(LARGE)
                load = run_load(home.program, "consume", home.bootstrap, LARGE, options)
                seen[who] = load.read_per_s * RECORD_BYTES / 1e6
            home.stop()
            home.believe_up_to(LARGE, 0)
            whole[who] = size_bytes / 1e9 / home.seconds_to_serve(who, LARGE)
            home.stop()
        table.add(f"start over {size} after a clean stop, to the first acknowledgement", "s", clean)
        table.add("the same after kill -9, started at once", "s", killed)
        table.add(
            "recovery of all of it, its recovery point lost, the start included", "GB/s", whole, higher_is_better=True
        )
        table.add("read all of it, out of the page cache", "MB/s", warm, higher_is_better=True)
        table.add("read all of it, from the disk", "MB/s", cold, higher_is_better=True)


def appending(home: OneHome, table: Table, rounds: Rounds, seconds: float) -> None:
    """One partition, written as fast as it goes."""
    home.kafka.start()
    create_topic(home.bootstrap, WRITTEN, retention_bytes=1 << 30)
    home.stop()
    for index in rounds:
        seen: dict[str, float] = {}
        for who in WHO if index % 2 else reversed(WHO):
            home.seconds_to_serve(who, WRITTEN)
            options = {"size": RECORD_BYTES, "seconds": seconds, "warmup": 2.0, "partitions": 1, "producer:acks": 1}
            load = run_load(home.program, "produce", home.bootstrap, WRITTEN, {**options, "limit": 1_500_000_000})
            seen[who] = load.records_per_s * RECORD_BYTES / 1e6
            home.stop()
        table.add("append 1 KB records to one partition, acks=1", "MB/s", seen, higher_is_better=True)


def many_partitions(new_home: many.NewHome, folder: Path, table: Table, rounds: Rounds, count: int) -> None:
    """Measure the creation of `count` partitions with a record in each, and starts over them."""
    for index in rounds:
        seen: dict[str, list[float | None]] = {}
        for who in WHO if index % 2 else reversed(WHO):
            seen[who] = many.measure(new_home, folder / f"{index}-{who.split()[-1].lower()}", who, count)
        for (name, unit), kafka, ours in zip(many.cells(count), seen[KAFKA], seen[OURS], strict=True):
            if kafka is not None and ours is not None:
                table.add(name, unit, {KAFKA: kafka, OURS: ours})


def page(table: Table, compaction: str, rounds: int, took_s: float, remarks: Sequence[str]) -> str:
    """The text of docs/benchmarks-log.md; `remarks` name the load during parts, and missing measurements."""
    lines = [
        "# The log, beside Apache Kafka's",
        "",
        "Written by `make bench-log`. Both brokers take the same data directory in turn; in each round a cell is",
        f"measured with both, one right after the other, and the first one alternates; up to {rounds} rounds, as many",
        "as fit the time. Of thousands of partitions each makes its own, in a new directory each time. A ratio above 1",
        "means that Odradek does better; it is taken within a round, and the table shows the median of the rounds.",
        "",
        f"- measured {datetime.date.today().isoformat()}, in {took_s / 60:.0f} minutes",
        f"- Odradek {importlib.metadata.version('odradek')}, Apache Kafka {KAFKA_VERSION} with a heap of {KAFKA_HEAP}",
        *(f"- {name}: {value}" for name, value in machine().items()),
        *(f"- {remark}" for remark in remarks),
        "",
        "| cell | unit | Apache Kafka | Odradek | ratio, median (lowest to highest) |",
        "|---|---|---|---|---|",
        *(row.line() for row in table.rows.values()),
    ]
    if compaction:
        lines += ["", "## Compaction", "", compaction]
    if NOTES.exists():
        lines += ["", NOTES.read_text().strip()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parse the command line and measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.log_bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, less data; writes nothing")
    parser.add_argument("--only", choices=["large", "append", "many", "compaction"], help="one part; writes nothing")
    parser.add_argument("--records", type=int, default=400_000, help="that are compacted")
    parser.add_argument("--minutes", type=float, default=11.0, help="for all parts; fewer rounds where they do not fit")
    parser.add_argument("--quiet-below", type=float, default=0.25, help="before each part wait until so little is busy")
    parser.add_argument(
        "--wait-min", type=float, default=1.0, help="but so many minutes at most, for all parts together"
    )
    options = parser.parse_args()
    try:
        kafka_libraries()
        program = build()
    except (KafkaUnavailableError, MissingError) as error:
        print(f"bench-log: {error}", file=sys.stderr)
        return 1
    most = 1 if options.quick else options.rounds
    wait_s = 0.0 if options.quick else options.wait_min * 60
    began, table, remarks = time.monotonic(), Table(), list[str]()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-log-") as name:
        folder = Path(name)
        compactions: list[str] = []

        def home(directory: Path) -> OneHome:
            return OneHome(directory, program, SETTINGS)

        def with_home(measure: Callable[[OneHome], None], part: str) -> None:
            with home(folder / part) as one:
                measure(one)

        def rounds(part: str) -> Rounds:
            return Rounds(most, options.minutes * 60 * SHARES[part])

        def compaction() -> None:
            codecs = ("none",) if options.quick else ("none", "lz4")
            late = time.monotonic() - began > options.minutes * 60 * (1 - SHARES["compaction"])
            results = [measure_compaction(folder, codec, options.records, 1 if late else most) for codec in codecs]
            compactions.append(compaction_table(results))

        seconds, size_bytes, count = (1.0, 300_000_000, 400) if options.quick else (3.0, 2_000_000_000, 4000)
        parts: dict[str, Callable[[], None]] = {
            "append": lambda: with_home(lambda one: appending(one, table, rounds("append"), seconds), "append"),
            "large": lambda: with_home(lambda one: one_large_log(one, table, rounds("large"), size_bytes), "large"),
            "many": lambda: many_partitions(home, folder / "many", table, rounds("many"), count),
            "compaction": compaction,
        }
        for part, measure in parts.items():
            if options.only not in (None, part):
                continue
            part_began = time.monotonic()
            busy = await_quiet(options.quiet_below, wait_s)
            wait_s -= time.monotonic() - part_began
            remarks.append(f"busy before `{part}`: {busy:.0%} of the processors")
            try:
                measure()
            except many.GAVE_UP as error:
                print(f"bench-log: {part} ends early: {error!r}", file=sys.stderr)
                remarks.append(f"`{part}` ended early, and has fewer rounds or none")
            print(f"bench-log: {part} took {time.monotonic() - part_began:.0f} s", file=sys.stderr, flush=True)
            text = page(table, "".join(compactions), most, time.monotonic() - began, remarks)
            if not (options.quick or options.only):
                PAGE.write_text(text)
    print(text)
    return 0


def await_quiet(busy: float, wait_s: float) -> float:
    """Wait until no more than that share of the processors is busy, so long at most; returns how much is."""
    deadline = time.monotonic() + wait_s
    while True:
        before = _processor_time()
        time.sleep(QUIET_LOOK_S)
        idle, total = (after - earlier for after, earlier in zip(_processor_time(), before, strict=True))
        share = 1 - idle / max(1, total)
        if share <= busy or time.monotonic() >= deadline:
            return share


def _processor_time() -> tuple[int, int]:
    """(idle, all) since the machine was started, in ticks; the load average would still have the part before in it."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)


if __name__ == "__main__":
    sys.exit(main())
