"""Spark's own Kafka connector and ours on the same brokers, in turns, in one run; brokers of ours and of Apache Kafka.

    python -m bench.spark_connectors                        under 12 minutes on two quiet cores; writes the page
    python -m bench.spark_connectors --quick                one round of fewer records; writes nothing
    python -m bench.spark_connectors --brokers odradek      brokers of ours alone; writes nothing

Writes docs/benchmarks-spark.md; bench/notes-spark.md explains the numbers. Spark's own connector is a jar from Maven
Central, of pyspark's version or the newest before it that is there. Everything is the same for both but the format's
name; JSON is parsed by `from_json` behind theirs and in the source by ours, and the topic sink is at-least-once with
theirs and exactly-once with ours. The two take turns within each round, the first one alternates, and a small topic
that is not counted warms both up. CPU is of the whole process tree: the JVM and Python's workers, and the brokers.
Cells that do not fit into --minutes get fewer rounds, or are left out; the page says which.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from confluent_kafka import Producer
from rich.console import Console

from bench import spark_page
from bench.spark_bench import create
from odradek.record.varint import zigzag
from tests.support.nodes.postgres import Postgres, find_postgres

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
LATENCY_RECORDS, LATENCY_WARM_UP = 40, 5
WARM_UP_RECORDS = 20_000
EVENTS, AVRO_EVENTS, WARM_UP = "bench", "bench-avro", "-warm-up"
NOT_MEASURED = ("", "not measured: the time was over", "")
AVRO = (
    '{"type":"record","name":"Event","fields":[{"name":"id","type":"long"},'
    '{"name":"customer","type":"string"},{"name":"amount","type":"double"}]}'
)


Work = Callable[..., None]
"""Takes the connector's name and, to warm it up, the end of the name of a small topic."""


class Cell(NamedTuple):
    """Seconds and seconds of CPU of one round."""

    seconds: float
    cpu_seconds: float


class Row(NamedTuple):
    """One line of the table; `theirs` is empty where Spark's connector has no such thing."""

    what: str
    theirs: str
    ours: str
    ratio: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_connectors", description=__doc__)
    parser.add_argument("--brokers", choices=["both", "odradek", "kafka"], default="both")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name has this in it; writes nothing")
    parser.add_argument("--quick", action="store_true", help="one round of a quarter of the records; writes nothing")
    parser.add_argument(
        "--minutes", type=float, default=10.5, help="rows that would begin later are left out, and named"
    )
    given = parser.parse_args()
    if given.quick:
        given.records, given.rounds = given.records // 4, 1
    started = time.monotonic()
    jars = connector_jars()
    kinds = ["odradek", "kafka"] if given.brokers == "both" else [given.brokers]
    tables: dict[str, list[Row]] = {}
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(Path(folder), jars)
        try:
            for kind in kinds:
                home = Path(folder) / f"with-{kind}"
                home.mkdir()
                with node(kind, home) as brokers:
                    # The second kind of brokers has the second half of the time.
                    deadline = started + 60 * given.minutes * (len(tables) + 1) / len(kinds)
                    bench = Bench(spark, brokers.bootstrap, home, given.records, given.rounds, given.only, deadline)
                    tables[kind] = []
                    for row in bench.rows():
                        text = f"{time.monotonic() - started:.0f} s, {kind}: {'  '.join(row)}"
                        console.print(text, highlight=False, soft_wrap=True)
                        tables[kind].append(row)
        finally:
            spark.stop()
    connector = next(jar.name for jar in jars if "sql-kafka" in jar.name)
    took_s = time.monotonic() - started
    text = spark_page.page(tables, connector, given.records, given.rounds, took_s)
    if given.brokers == "both" and not (given.quick or given.only):
        spark_page.PAGE.write_text(text)
    console.print(text, highlight=False, soft_wrap=True)


def start_spark(folder: Path, jars: list[Path]) -> Any:
    """One session with both connectors."""
    from pyspark_odradek import session

    config = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": 2}
    return session("bench", master="local[2]", log_file=folder / "spark.log", config=config)


def node(kind: str, folder: Path) -> Any:
    """A broker in a process of its own."""
    if kind == "kafka":
        from tests.support.nodes.apache_kafka import ApacheKafka

        return ApacheKafka(folder / "kafka", heap="1g", measured=True)
    from tests.support.nodes.node import Node

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
    """Fetch one version, without Spark itself, which pyspark has; says why where it is not available."""
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
    """The measures of one cluster."""

    def __init__(
        self, spark: Any, bootstrap: str, folder: Path, count: int, rounds: int, only: str, deadline: float = math.inf
    ) -> None:
        self.spark = spark
        self.deadline = deadline
        self.bootstrap = bootstrap
        self.folder = folder
        self.count = count
        self.rounds = rounds
        self.only = only
        for events, many in ((EVENTS, count), (EVENTS + WARM_UP, WARM_UP_RECORDS)):
            fill(bootstrap, events, many)
        for events, many in ((AVRO_EVENTS, count), (AVRO_EVENTS + WARM_UP, WARM_UP_RECORDS)):
            fill_avro(bootstrap, events, many)
        for name in (THEIRS, OURS):
            create(bootstrap, f"sink-{name}", 4)

    def rows(self) -> Iterator[Row]:
        """One row of the table after another; those that would begin after the deadline are named."""
        for what, measure in self.measurements():
            if self.only not in what:
                continue
            row = measure(what) if time.monotonic() < self.deadline else Row(what, *NOT_MEASURED)
            if row is not None:
                yield row

    def measurements(self) -> list[tuple[str, Callable[[str], Row | None]]]:
        """The subject of each row, and how it is measured; rows of both connectors before those of ours alone."""
        both, alone = (THEIRS, OURS), (OURS,)
        once = partial(self.copy, delivery="at_least_once")
        works: list[tuple[str, Work, tuple[str, ...]]] = [
            ("batch read, raw, into nothing", partial(self.read, json=False), both),
            ("batch read, JSON to columns, into nothing", partial(self.read, json=True), both),
            ("batch read, Avro to columns, into nothing", self.read_avro, alone),
            ("stream from topic to topic", self.copy, both),
            ("the same, at least once with both", once, both),
        ]
        return [
            *((what, partial(self.row, work=work, names=names)) for what, work, names in works),
            ("one record, send to foreachBatch", partial(self.latencies, stateful=False)),
            ("the same, counted by key", partial(self.latencies, stateful=True)),
            *(
                (f"stream from topic to {sink}", partial(self.sink_row, sink))
                for sink in ("delta", "iceberg", "postgres")
            ),
        ]

    def latencies(self, what: str, *, stateful: bool) -> Row:
        theirs, ours = (statistics.median(self.latency(name, stateful)) for name in (THEIRS, OURS))
        return Row(what, f"{theirs:.0f} ms", f"{ours:.0f} ms", f"{theirs / ours:.2f}")

    def sink_row(self, sink: str, what: str) -> Row | None:
        """The row of a sink; None if it is not installed."""
        with self.sink_options(sink) as options:
            return None if options is None else self.row(what, partial(self.into_table, options), (OURS,))

    def row(self, what: str, work: Work, names: tuple[str, ...]) -> Row:
        cells: dict[str, list[Cell]] = {name: [] for name in names}
        for name in names:
            work(name, WARM_UP)
        for number in range(self.rounds):
            if number and time.monotonic() > self.deadline:
                break
            for name in reversed(names) if number % 2 else names:
                began, cpu = time.perf_counter(), tree_cpu_seconds()
                work(name)
                cells[name].append(Cell(time.perf_counter() - began, tree_cpu_seconds() - cpu))
        rounds = len(cells[OURS])
        shown = {THEIRS: ""}
        for name, found in cells.items():
            rate = self.count / statistics.median(cell.seconds for cell in found)
            cpu_ns = statistics.median(cell.cpu_seconds for cell in found) / self.count * 1e9
            shown[name] = f"{rate:,.0f}/s, {cpu_ns:,.0f} ns CPU"
        ratio = ""
        if len(names) == 2:
            pairs = zip(cells[THEIRS], cells[OURS], strict=True)
            ratios = sorted(theirs.seconds / ours.seconds for theirs, ours in pairs)
            ratio = f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        if rounds < self.rounds:
            what += f" (rounds: {rounds})"
        return Row(what, shown[THEIRS], shown[OURS], ratio)

    @contextlib.contextmanager
    def sink_options(self, sink: str) -> Iterator[dict[str, str] | None]:
        """The options of a sink; None if a package that it needs is not installed."""
        options = {"sink": sink}
        if sink == "delta":
            yield options | {"path": str(self.folder / "delta")}
        elif sink == "iceberg":
            catalog = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/lake"}
            options |= {"table": "bench.rows"} | {f"catalog.{name}": value for name, value in catalog.items()}
            yield options if importlib.util.find_spec("pyiceberg") else None
        elif find_postgres() is None:
            yield None
        else:
            with Postgres() as server:
                yield options | {"connection": server.url, "table": "rows", "createTable": "true"}

    def into_table(self, sink: dict[str, str], name: str, which: str = "") -> None:
        columns = ["STRING(key) key", "STRING(value) value"]
        stream = self.spark.readStream.format(name).options(**self.of(EVENTS + which)).load().selectExpr(*columns)
        with tempfile.TemporaryDirectory(dir=self.folder) as checkpoint:
            writer = stream.writeStream.format(name).options(**sink).option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()

    def of(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def read_avro(self, name: str, which: str = "") -> None:
        options = self.of(AVRO_EVENTS + which) | {"valueFormat": "avro", "valueSchema": AVRO}
        frame = self.spark.read.format(name).options(**options).load().select("value.*")
        frame.write.format("noop").mode("overwrite").save()

    def read(self, name: str, which: str = "", *, json: bool) -> None:
        options = self.of(EVENTS + which)
        if json and name == OURS:
            options |= {"valueFormat": "json", "valueSchema": SCHEMA}
        frame = self.spark.read.format(name).options(**options).load()
        if json and name == THEIRS:
            frame = frame.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') value")
        if json:
            frame = frame.select("value.*")
        frame.write.format("noop").mode("overwrite").save()

    def copy(self, name: str, which: str = "", delivery: str = "exactly_once") -> None:
        options = self.of(EVENTS + which)
        stream = self.spark.readStream.format(name).options(**options).load().select("key", "value")
        with tempfile.TemporaryDirectory(dir=self.folder) as checkpoint:
            writer = stream.writeStream.format(name).option("kafka.bootstrap.servers", self.bootstrap)
            writer = writer.option("topic", f"sink-{name}").option("checkpointLocation", checkpoint)
            if name == OURS:
                writer = writer.option("delivery", delivery)
            writer.trigger(availableNow=True).start().awaitTermination()

    def latency(self, name: str, stateful: bool) -> list[float]:
        """Milliseconds from a record's send to its row in foreachBatch, one record at a time."""
        arrived: dict[bytes, float] = {}

        def record_arrivals(batch: Any, _: int) -> None:
            for row in batch.select("value").collect():
                arrived[bytes(row.value)] = time.monotonic()

        topic = f"latency-{name}-{stateful}"
        create(self.bootstrap, topic, 1)
        stream = self.spark.readStream.format(name).options(**self.of(topic)).load()
        if stateful:
            stream = stream.groupBy("value").count()
        checkpoint = str(self.folder / topic)
        writer = stream.writeStream.foreachBatch(record_arrivals).option("checkpointLocation", checkpoint)
        query = writer.outputMode("update").start()
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        delays = []
        try:
            for number in range(LATENCY_WARM_UP + LATENCY_RECORDS):
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
        return delays[LATENCY_WARM_UP:]


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
    produce(bootstrap, topic, (json_value(number) for number in range(count)))


def json_value(number: int) -> bytes:
    return b'{"id":%d,"customer":"customer-%05d","amount":%d.%02d,"at":"2026-01-01T%02d:%02d:00Z"}' % (
        number,
        number % 10_000,
        number % 500,
        number % 100,
        number % 24,
        number % 60,
    )


def fill_avro(bootstrap: str, topic: str, count: int) -> None:
    """The same events in Avro's binary encoding, without the time."""
    customers = [b"customer-%05d" % number for number in range(10_000)]
    values = (
        zigzag(number) + zigzag(14) + customers[number % 10_000] + struct.pack("<d", number % 500 + 0.5)
        for number in range(count)
    )
    produce(bootstrap, topic, values)


def produce(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    create(bootstrap, topic, 4)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, b"%08d" % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    main()
