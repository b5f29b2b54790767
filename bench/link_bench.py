"""`python -m bench.link_bench`: a link beside Apache Kafka's MirrorMaker 2, between the same two nodes of Odradek.

Writes docs/benchmarks-links.md; `--quick` prints a first look at less and writes nothing. bench/notes-links.md explains
the numbers.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.brokers import SETTINGS, Contestant, machine
from bench.mirror_maker import HEAP, mirror_maker
from bench.report import number
from tests.interop.mirror_maker import libraries
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import admin, create_topic
from tests.support.nodes.apache_kafka import VERSION, KafkaUnavailableError
from tests.support.nodes.node import Node
from tests.support.nodes.server_process import ServerProcess

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-links.md"
NOTES = Path(__file__).with_name("notes-links.md")
MM2, LINK = "MirrorMaker 2", "link"
PARTITIONS = 3
PATIENCE_S = 300.0
LOOK_EVERY_S = 0.1
# The share of records that a mirror has before the measurement begins, which leaves out its start and its warm-up.
WARM = 0.25
# A mirror that has this share at its first look is measured from its start.
LATE = 0.75
LIVE_RATE = 500
LINK_NAME = "west"
WARM_UP_S = 5.0
# Its defaults make batches of 16 KB; a producer of 1 KB records is given larger ones in practice.
MM2_PRODUCER: dict[str, object] = {"batch.size": 262_144, "linger.ms": 5}


@dataclass(frozen=True)
class Load:
    """The records that a mirror catches up with."""

    name: str
    record_bytes: int
    total_bytes: int
    compression: str

    @property
    def count(self) -> int:
        """The number of records in all partitions."""
        return self.total_bytes // self.record_bytes


@dataclass(slots=True)
class Row:
    """One measured quantity, with a pair (MirrorMaker 2, link) for each round."""

    name: str
    unit: str
    higher_is_better: bool
    rounds: list[tuple[float, float]] = field(default_factory=list)

    def line(self) -> str:
        """The row as Markdown; a ratio above 1 is better for the link."""
        other, ours = (number(statistics.median(each[which] for each in self.rounds)) for which in (0, 1))
        pairs = self.rounds if self.higher_is_better else [(ours, other) for other, ours in self.rounds]
        ratios = [good / max(base, 1e-9) for base, good in pairs]
        spread = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        return f"| {self.name} | {self.unit} | {other} | {ours} | {spread} |"


class Table:
    """Rows in the order in which they were first measured."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def add(self, name: str, unit: str, seen: Mapping[str, float], *, higher_is_better: bool = False) -> None:
        self.rows.setdefault(name, Row(name, unit, higher_is_better)).rounds.append((seen[MM2], seen[LINK]))
        print(f"  {name:<60} {seen[MM2]:>12.2f} {seen[LINK]:>12.2f} {unit}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Usage:
    """Processor seconds and memory between two moments.

    Attributes:
        mirror_s, broker_s: of MirrorMaker's process, 0 for a link; of the destination's broker.
        memory_bytes: of MirrorMaker's process, or what the broker has grown by since its start.
    """

    mirror_s: float = 0.0
    broker_s: float = 0.0
    memory_bytes: int = 0
    wall_s: float = 0.0

    @property
    def of_mirroring_s(self) -> float:
        """The processor seconds of mirroring: of MirrorMaker's process, or of the whole broker with the link."""
        return self.mirror_s or self.broker_s


class Sites:
    """The source, the destination, and the link or MirrorMaker between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = Contestant("source", Node(folder / "source", dict(SETTINGS)).start())
        self.here = Contestant("here", Node(folder / "here", dict(SETTINGS)).start())
        self.at_start_bytes = self.here.memory_bytes()
        odradek(self.here.bootstrap, "links", "create", LINK_NAME, "--source", self.source.bootstrap)

    def stop(self) -> None:
        """Stop both brokers."""
        self.source.broker.stop()
        self.here.broker.stop()

    @contextmanager
    def mirroring(
        self, who: str, topic: str, producer: Mapping[str, object]
    ) -> Iterator[tuple[str, Contestant | None]]:
        """Mirror a topic; gives its name at the destination, and the process beside the broker."""
        if who == LINK:
            odradek(self.here.bootstrap, "links", "mirror", LINK_NAME, topic)
            yield topic, None
            delete_topic(self.here.bootstrap, topic)
            return
        alias = f"of-{topic}"
        maker: ServerProcess = mirror_maker(
            self.folder / alias,
            alias,
            self.source.bootstrap,
            self.here.bootstrap,
            topic,
            tasks=PARTITIONS,
            producer=dict(producer),
        )
        try:
            with maker:
                yield f"{alias}.{topic}", Contestant(MM2, maker)  # type: ignore[arg-type]  # it has what a contestant calls
        except BaseException:
            print(maker.log_tail(), file=sys.stderr)
            raise
        delete_topic(self.here.bootstrap, f"{alias}.{topic}")

    def used(self, beside: Contestant | None) -> Usage:
        """The usage since the start of the processes."""
        broker_s, grown = self.here.cpu_s(), self.here.memory_bytes() - self.at_start_bytes
        if beside is None:
            return Usage(0.0, broker_s, grown, time.monotonic())
        return Usage(beside.cpu_s(), broker_s, beside.memory_bytes(), time.monotonic())


def between(first: Usage, last: Usage, most_bytes: int) -> Usage:
    """The usage between two moments."""
    return Usage(last.mirror_s - first.mirror_s, last.broker_s - first.broker_s, most_bytes, last.wall_s - first.wall_s)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic; return when the deletion is requested."""
    client = admin(bootstrap)
    client.delete_topics([topic])[topic].result(timeout=60)


def fill(bootstrap: str, topic: str, load: Load) -> None:
    """Produce all records of a load, over all partitions, in batches as librdkafka makes them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": load.compression})
    if load.compression == "none":
        noise = Random(7).randbytes(1 << 20)
    else:
        words = [f"order {number} carrier delay 2013-01-01 JFK status=200 GET /api/v1/ " for number in range(20_000)]
        noise = "".join(words).encode()
    size, room = load.record_bytes, len(noise) - load.record_bytes
    for index in range(load.count):
        at = index * 997 % room
        while True:
            try:
                producer.produce(topic, noise[at : at + size], partition=index // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if index % 1000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


class Ends:
    """Asks where a topic's partitions end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def total(self) -> int:
        """Records of all partitions; 0 before the topic is there."""
        try:
            return sum(self._consumer.get_watermark_offsets(each, timeout=5)[1] for each in self._partitions)
        except KafkaException:
            return 0

    def close(self) -> None:
        self._consumer.close()


def catch_up(sites: Sites, who: str, topic: str, load: Load) -> Usage:
    """Mirror a full topic; return the usage from a quarter of it to the end."""
    producer = {**MM2_PRODUCER, "compression.type": load.compression}
    with sites.mirroring(who, topic, producer) as (name, beside):
        ends = Ends(sites.here.bootstrap, name)
        deadline, first, from_count, most, seen = time.monotonic() + PATIENCE_S, sites.used(beside), 0, 0, 0
        while seen < load.count:
            assert time.monotonic() < deadline, f"{who} has {seen} of {load.count} records after {PATIENCE_S:g} s"
            seen = ends.total()
            now = sites.used(beside)
            most = max(most, now.memory_bytes)
            if not from_count and load.count * WARM <= seen < load.count * LATE:
                first, from_count = now, seen
            time.sleep(LOOK_EVERY_S)
        ends.close()
        used = between(first, now, most)
        # Scaled to all three quarters: the first look may have been later than at a quarter.
        share = (load.count - from_count) / (load.count * (1 - WARM))
        return Usage(used.mirror_s / share, used.broker_s / share, used.memory_bytes, used.wall_s / share)


def catching_up(sites: Sites, table: Table, load: Load, index: int) -> None:
    """One round: both mirror the same topic, one after the other."""
    topic = f"full-{load.record_bytes}-{index}"
    create_topic(sites.source.bootstrap, topic, PARTITIONS)
    fill(sites.source.bootstrap, topic, load)
    seen = {who: catch_up(sites, who, topic, load) for who in in_turn(index)}
    delete_topic(sites.source.bootstrap, topic)
    megabytes = load.total_bytes * (1 - WARM) / 1e6
    of = f"catch up, {load.name}"

    def each(value: Callable[[Usage], float]) -> dict[str, float]:
        return {who: value(used) for who, used in seen.items()}

    count = load.count * (1 - WARM)
    table.add(of, "records/s", each(lambda used: count / used.wall_s), higher_is_better=True)
    rate = each(lambda used: megabytes / used.wall_s)
    table.add(f"{of}: values", "MB/s", rate, higher_is_better=True)
    table.add(f"{of}: processor of what mirrors", "s/GB", each(lambda used: used.of_mirroring_s / megabytes * 1000))
    table.add(
        f"{of}: the same and the destination's broker",
        "s/GB",
        each(lambda used: (used.mirror_s + used.broker_s) / megabytes * 1000),
    )
    table.add(f"{of}: memory of what mirrors", "MB", each(lambda used: used.memory_bytes / 1e6))


def live(sites: Sites, who: str, topic: str, seconds: float) -> tuple[list[float], Usage]:
    """Records at a steady rate; how long each took from its send to a reader at the destination, in ms."""
    took: list[float] = []
    with sites.mirroring(who, topic, MM2_PRODUCER) as (name, beside):
        ends = Ends(sites.here.bootstrap, name)
        deadline = time.monotonic() + PATIENCE_S
        while ends.total() < PARTITIONS:
            assert time.monotonic() < deadline, f"{who} has not begun after {PATIENCE_S:g} s"
            time.sleep(LOOK_EVERY_S)
        ends.close()
        writer = threading.Thread(target=write_at_rate, args=(sites.source.bootstrap, topic, seconds + WARM_UP_S))
        reader = Consumer({"bootstrap.servers": sites.here.bootstrap, "group.id": "live", "fetch.wait.max.ms": 500})
        reader.assign([TopicPartition(name, number, 1) for number in range(PARTITIONS)])
        began, first = time.monotonic(), None
        writer.start()
        most = 0
        while (now_s := time.monotonic()) < began + WARM_UP_S + seconds:
            message = reader.poll(0.1)
            if now_s >= began + WARM_UP_S and first is None:
                first = sites.used(beside)
            if message is not None and not message.error() and first is not None:
                took.append((time.monotonic_ns() - int(message.value() or b"0")) / 1e6)
        last = sites.used(beside)
        most = last.memory_bytes
        writer.join()
        reader.close()
    assert first is not None
    return took, between(first, last, most)


def write_at_rate(bootstrap: str, topic: str, seconds: float) -> None:
    """Produce records that contain the time at which they were due, so that a late one counts as late."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    due = time.monotonic_ns()
    for index in range(int(seconds * LIVE_RATE)):
        due += int(1e9 / LIVE_RATE)
        if (left_s := (due - time.monotonic_ns()) / 1e9) > 0:
            time.sleep(left_s)
        producer.produce(topic, str(due).encode().ljust(1000), partition=index % PARTITIONS)
        producer.poll(0)
    producer.flush(30)


def latencies(sites: Sites, table: Table, index: int, seconds: float) -> None:
    """One round of records at a steady rate."""
    seen: dict[str, tuple[list[float], Usage]] = {}
    for who in in_turn(index):
        topic = f"live-{index}-{who.split()[0].lower()}"
        create_topic(sites.source.bootstrap, topic, PARTITIONS)
        first = Producer({"bootstrap.servers": sites.source.bootstrap})
        for partition in range(PARTITIONS):
            first.produce(topic, b"0", partition=partition)
        assert first.flush(30) == 0
        seen[who] = live(sites, who, topic, seconds)
        delete_topic(sites.source.bootstrap, topic)
    of = f"{LIVE_RATE} records/s of 1 KB"
    for share in (50, 99):
        at = {who: statistics.quantiles(took, n=100)[share - 1] for who, (took, _) in seen.items()}
        table.add(f"{of}: append to read, p{share}", "ms", at)
    for with_broker, name in ((False, "processor of what mirrors"), (True, "the same and the destination's broker")):
        taken: dict[str, float] = {}
        for who, (_, used) in seen.items():
            seconds_of = used.mirror_s + used.broker_s if with_broker else used.of_mirroring_s
            taken[who] = seconds_of / used.wall_s * 1000
        table.add(f"{of}: {name}", "ms/s", taken)


def in_turn(index: int) -> tuple[str, str]:
    """Both contestants in the order of this round: each is the first in every other round."""
    return (MM2, LINK) if index % 2 else (LINK, MM2)


def page(table: Table, hardware: Mapping[str, str], busy: str, rounds: int, took_s: float) -> str:
    """The whole of docs/benchmarks-links.md."""
    producer = ", ".join(f"`{name}={value}`" for name, value in MM2_PRODUCER.items())
    lines = [
        "# A link, beside MirrorMaker 2",
        "",
        "Written by `make bench-link`. Source and destination are two nodes of Odradek on one machine, the same for",
        f"both; in each of {rounds} rounds both mirror the same records, one right after the other, and the first one",
        "alternates. A ratio above 1 means that the link does better; it is taken within a round; the table shows the",
        "median of the rounds.",
        "",
        f"- measured {datetime.date.today().isoformat()}, in {took_s / 60:.1f} minutes; {busy}",
        f"- Odradek {importlib.metadata.version('odradek')}; MirrorMaker 2 of Apache Kafka {VERSION}, one worker with",
        f"  {PARTITIONS} tasks, a heap of up to {HEAP}, {producer} for its producer;",
        f"  {PARTITIONS} partitions, replication factor 1; neither mirrors offsets, settings or ACLs",
        *(f"- {name}: {value}" for name, value in hardware.items()),
        "",
        "| cell | unit | MirrorMaker 2 | link | ratio, median (lowest to highest) |",
        "|---|---|---|---|---|",
        *(row.line() for row in table.rows.values()),
        "",
        "- *Catch up*: a topic that is full is mirrored. From when a quarter is there to the last record, so that",
        "  starts do not count. MirrorMaker's producer compresses what was compressed.",
        "- *Processor of what mirrors*: all of MirrorMaker's process; of the link, which runs in the destination's",
        "  broker, **all that this broker did meanwhile**, with appending and serving readers: nothing is taken off",
        "  for what a broker would do anyway. The row below it adds what the destination's broker did for MirrorMaker.",
        "- *Memory*: the most that MirrorMaker's process had, and the most by which the destination's broker was",
        "  larger than after its start.",
        "- *Append to read*: from the moment at which a record was due at the source's producer until a consumer of",
        "  the destination had it.",
    ]
    if NOTES.exists():
        lines += ["", NOTES.read_text().strip()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parse the command line and measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.link_bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run at a steady rate")
    parser.add_argument("--gb", type=float, default=2.0, help="of records of 1 KB to catch up with")
    parser.add_argument("--quick", action="store_true", help="one round, 0.2 GB, 5 s; does not touch the docs")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks-links.md (the full form does)")
    options = parser.parse_args()
    try:
        libraries()
    except KafkaUnavailableError as error:
        print(f"bench-link: {error}", file=sys.stderr)
        return 1
    rounds, seconds, size = options.rounds, options.seconds, options.gb
    if options.quick:
        rounds, seconds, size = 1, min(5.0, seconds), min(0.2, size)
    loads = [
        Load(f"{size:g} GB of 1 KB, not compressed", 1000, int(size * 1e9), "none"),
        Load(f"{size / 4:g} GB of 100 B, lz4", 100, int(size / 4 * 1e9), "lz4"),
    ]
    table, started, busy_before = Table(), time.monotonic(), os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-link-") as folder:
        sites = Sites(Path(folder))
        try:
            for index in range(1, rounds + 1):
                for load in loads:
                    catching_up(sites, table, load, index)
                latencies(sites, table, index, seconds)
        finally:
            sites.stop()
    busy = (
        f"load average {busy_before[0]:.1f} before and {os.getloadavg()[0]:.1f} behind, of {os.cpu_count()} processors"
    )
    text = page(table, machine(), busy, rounds, time.monotonic() - started)
    print(text)
    if options.write or not options.quick:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
