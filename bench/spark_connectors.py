"""Spark's own Kafka connector and ours over the same brokers, in turns, in one run.

    python -m bench.spark_connectors                        a node of ours
    python -m bench.spark_connectors --brokers kafka        a node of Apache Kafka
    python -m bench.spark_connectors --records 1000000 --rounds 5

Spark's connector is a jar from Maven Central, of pyspark's version or the newest before it that is there. Everything is
the same for both but the format's name; JSON is parsed by `from_json` behind theirs and in the source by ours, and the
sink is at-least-once with theirs and exactly-once with ours. Each cell is the median of the rounds; the two take turns
within each, and a round of each that is not counted goes before. CPU is of the whole process tree: the JVM and Python's
workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.spark_bench import create

CACHE = Path(__file__).resolve().parents[1] / ".cache"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
DEPENDENCY = (
    "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>" + ALONE + "</dependency>"
)
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.bench</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
# The connector and its token provider: of our Spark, or the newest ones that mirrors are known to have together.
VERSIONS = ((pyspark.__version__, pyspark.__version__), ("4.2.0", "4.0.0"))
SCHEMA = "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP"
THEIRS, OURS = "kafka", "odradek"
LATENCY_RECORDS = 40


class Cell(NamedTuple):
    """Seconds and seconds of CPU of one round."""

    seconds: float
    cpu_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_connectors", description=__doc__)
    parser.add_argument("--brokers", choices=["odradek", "kafka"], default="odradek")
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    jars = connector_jars()
    console = Console()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        bootstrap = stack.enter_context(node(given.brokers, Path(folder))).bootstrap
        bench = Bench(bootstrap, Path(folder), jars, given.records, given.rounds)
        try:
            table = Table(title=f"{given.records:,} records of JSON on brokers of {given.brokers}, 4 partitions")
            for column in ("what", "Spark's connector", "ours", "ours to theirs"):
                table.add_column(column, justify="left" if column == "what" else "right")
            for row in bench.rows():
                console.print("  ".join(row))
                table.add_row(*row)
        finally:
            bench.spark.stop()
        console.print(table)
        console.print(f"Spark {pyspark.__version__}, {', '.join(jar.name for jar in jars if 'sql-kafka' in jar.name)}")


def node(kind: str, folder: Path) -> Any:
    """A broker in a process of its own."""
    if kind == "kafka":
        from tests.support.apache_kafka import ApacheKafka

        return ApacheKafka(folder / "kafka", heap="1g")
    from tests.support.node import Node

    return Node(folder / "node")


def connector_jars() -> list[Path]:
    """The jars of Spark's connector, fetched once by Maven."""
    failures = []
    for connector, tokens in VERSIONS:
        home = CACHE / f"spark-sql-kafka-{connector}"
        failure = None if home.exists() else fetch(connector, tokens, home)
        if failure is None:
            return sorted(home.glob("*.jar"))
        failures.append(failure)
    raise SystemExit("\n".join(failures))


def fetch(connector: str, tokens: str, home: Path) -> str | None:
    """Fetch one version, without Spark itself, which pyspark has; says why where it cannot be had."""
    if shutil.which("mvn") is None:
        return "needs Maven (mvn) to fetch Spark's own connector"
    CACHE.mkdir(exist_ok=True)
    wanted = [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", connector),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ]
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        pom = POM.format("".join(DEPENDENCY.format(*each) for each in wanted))
        (Path(folder) / "pom.xml").write_text(pom)
        fetched = Path(folder) / "lib"
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["no reason given"]
            return f"Maven could not fetch spark-sql-kafka {connector}: {lines[0][:300]}"
        fetched.rename(home)
    return None


class Bench:
    """One session with both connectors, one cluster, and what is measured."""

    def __init__(self, bootstrap: str, folder: Path, jars: list[Path], count: int, rounds: int) -> None:
        from pyspark_odradek import session

        self.bootstrap = bootstrap
        self.folder = folder
        self.count = count
        self.rounds = rounds
        fill(bootstrap, "bench", count)
        for name in (THEIRS, OURS):
            create(bootstrap, f"sink-{name}", 4)
            create(bootstrap, f"latency-{name}", 1)
        self.spark: Any = session(
            "bench",
            master="local[2]",
            log_file=folder / "spark.log",
            config={"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "2g"},
        )

    def rows(self) -> Any:
        """One row of the table after another."""
        yield self.row("batch read, raw, into nothing", lambda name: self.read(name, json=False))
        yield self.row("batch read, JSON to columns, into nothing", lambda name: self.read(name, json=True))
        yield self.row("stream from topic to topic", self.copy)
        found = {name: self.latency(name) for name in (THEIRS, OURS)}
        theirs, ours = (statistics.median(found[name]) for name in (THEIRS, OURS))
        yield ("one record, send to foreachBatch", f"{theirs:.0f} ms", f"{ours:.0f} ms", f"{ours / theirs:.2f} x")

    def row(self, what: str, work: Callable[[str], None]) -> tuple[str, str, str, str]:
        cells: dict[str, list[Cell]] = {THEIRS: [], OURS: []}
        for _ in range(self.rounds + 1):
            for name, found in cells.items():
                began, cpu = time.perf_counter(), tree_cpu_seconds()
                work(name)
                found.append(Cell(time.perf_counter() - began, tree_cpu_seconds() - cpu))
        rates, shown = {}, {}
        for name, found in cells.items():
            rates[name] = self.count / statistics.median(cell.seconds for cell in found[1:])
            cpu_ns = statistics.median(cell.cpu_seconds for cell in found[1:]) / self.count * 1e9
            shown[name] = f"{rates[name]:,.0f}/s, {cpu_ns:,.0f} ns CPU"
        return what, shown[THEIRS], shown[OURS], f"{rates[OURS] / rates[THEIRS]:.2f} x"

    def read(self, name: str, *, json: bool) -> None:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": "bench", "startingOffsets": "earliest"}
        if json and name == OURS:
            options |= {"valueFormat": "json", "valueSchema": SCHEMA}
        frame = self.spark.read.format(name).options(**options).load()
        if json and name == THEIRS:
            frame = frame.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') value")
        if json:
            frame = frame.select("value.*")
        frame.write.format("noop").mode("overwrite").save()

    def copy(self, name: str) -> None:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": "bench", "startingOffsets": "earliest"}
        stream = self.spark.readStream.format(name).options(**options).load().select("key", "value")
        with tempfile.TemporaryDirectory(dir=self.folder) as checkpoint:
            writer = stream.writeStream.format(name).option("kafka.bootstrap.servers", self.bootstrap)
            writer = writer.option("topic", f"sink-{name}").option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()

    def latency(self, name: str) -> list[float]:
        """Milliseconds from a record's send to its row in foreachBatch, one record at a time."""
        arrived: dict[bytes, float] = {}

        def note(batch: Any, _: int) -> None:
            for row in batch.select("value").collect():
                arrived[bytes(row.value)] = time.monotonic()

        topic = f"latency-{name}"
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        stream = self.spark.readStream.format(name).options(**options).load()
        checkpoint = str(self.folder / topic)
        query = stream.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        delays = []
        try:
            for number in range(LATENCY_RECORDS):
                value, sent = b"%d" % number, time.monotonic()
                producer.produce(topic, value)
                producer.flush(10)
                while value not in arrived:
                    time.sleep(0.001)
                    assert time.monotonic() - sent < 60, "the record did not arrive"
                delays.append((arrived[value] - sent) * 1000)
                time.sleep(0.05)
        finally:
            query.stop()
        return delays[5:]


def tree_cpu_seconds() -> float:
    """User and system time of this process's descendants, with that of those that have ended and were awaited."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total = 0
    for pid in parents:
        above: int | None = pid
        while above is not None and above != os.getpid():
            above = parents.get(above)
        if above is not None and pid != os.getpid():
            total += ticks[pid]
    return total / os.sysconf("SC_CLK_TCK")


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Events in JSON of about a hundred bytes, with keys."""
    create(bootstrap, topic, 4)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(count):
        value = b'{"id":%d,"customer":"customer-%05d","amount":%d.%02d,"at":"2026-01-01T%02d:%02d:00Z"}' % (
            number,
            number % 10_000,
            number % 500,
            number % 100,
            number % 24,
            number % 60,
        )
        while True:
            try:
                producer.produce(topic, value, b"%08d" % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    main()
