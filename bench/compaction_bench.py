"""The speed of compaction: our cleaner and Apache Kafka's over the same files, one right after the other.

Apache Kafka makes the topic; its segments are then replaced by ones that we write, so that both clean the very same
bytes. Each broker starts over a copy of that directory, cleans at once, and logs how long it took. Nothing
else runs on either broker meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.log.rolling import roll
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import ApacheKafka

TOPIC = "compacted"
KEY_COUNT = 100_000
BATCH_RECORDS = 100
VALUE_BYTES = 80
SEGMENT_BYTES = 64 << 20
TIMEOUT_S = 180.0
TIMESTAMP_MS = 1_767_225_600_000
KAFKA_LOGGER = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log=info"
OURS_DONE = re.compile(rf"compacted log={TOPIC}-0 .*took_ms=(\d+)")
KAFKA_DONE = re.compile(rf"cleaned log {TOPIC}-0 .*?of log processed in ([\d,.]+) seconds", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over all rounds, in seconds, of one codec."""

    codec: str
    record_count: int
    size_bytes: int
    ours_s: float
    kafka_s: float

    def row(self) -> str:
        ours, kafka = (f"{self.record_count / each / 1e6:.2f} M" for each in (self.ours_s, self.kafka_s))
        speeds = (f"{self.size_bytes / each / 1e6:.0f} MB/s" for each in (self.ours_s, self.kafka_s))
        return f"| {self.codec} | " + " | ".join((ours, kafka, *speeds, f"{self.kafka_s / self.ours_s:.2f}")) + " |"


def fill(directory: Path, codec: str, record_count: int) -> int:
    """Replace a partition's segments by ones with random keys; returns their bytes."""
    for path in directory.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    disk, random = RealDisk(workers=1), Random(5)
    noise = random.randbytes(1 << 16)
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES)
    log = open_log(FileCache(disk), directory, (TOPIC, 0), config, now_ms=TIMESTAMP_MS)
    for number in range(record_count // BATCH_RECORDS):
        records = []
        for _ in range(BATCH_RECORDS):
            start = random.randrange(len(noise) - VALUE_BYTES)
            # Half of a value compresses, half does not.
            value = noise[start : start + VALUE_BYTES // 2] + b"x" * (VALUE_BYTES // 2)
            records.append(Record(b"key-%012d" % random.randrange(KEY_COUNT), value, (), TIMESTAMP_MS + number))
        batch = build_batch(records, compression=codec)
        log.append_as_leader([batch], [BatchHeader.read(batch)], leader_epoch=0, now_ms=TIMESTAMP_MS)
    roll(log, TIMESTAMP_MS)
    close_log(log)
    disk.close()
    return log.size_bytes


def made_by_kafka(home: Path) -> ApacheKafka:
    """A stopped node of Apache Kafka with the topic in its metadata."""
    kafka = ApacheKafka(home, {"log.cleaner.backoff.ms": 100, "log.cleaner.min.cleanable.ratio": 0.01}, measured=True)
    with kafka:
        create_topic(kafka.bootstrap, TOPIC, cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
    return kafka


@contextlib.contextmanager
def running(kafka: ApacheKafka, who: str) -> Iterator[Path]:
    """One of the two over the directory; yields where its output goes."""
    if who == "kafka":
        os.environ["JAVA_TOOL_OPTIONS"] = KAFKA_LOGGER
        try:
            with kafka:
                yield kafka.output
        finally:
            del os.environ["JAVA_TOOL_OPTIONS"]
        return
    output = kafka.directory / "ours.log"
    command = [sys.executable, "-m", "odradek", "broker", "--config", str(kafka.properties)]
    with output.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield output
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def time_of_cleaning(kafka: ApacheKafka, who: str) -> float:
    """Let one of the two clean the directory; returns the seconds that it says it took."""
    output = kafka.directory / ("kafka.log" if who == "kafka" else "ours.log")
    output.unlink(missing_ok=True)
    pattern = KAFKA_DONE if who == "kafka" else OURS_DONE
    deadline = time.monotonic() + TIMEOUT_S
    with running(kafka, who):
        while True:
            found = pattern.search(output.read_text(errors="replace")) if output.exists() else None
            if found is not None:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{who} did not clean in {TIMEOUT_S:g} s; see {output}")
            time.sleep(0.1)
    number = float(found[1].replace(",", ""))
    return number if who == "kafka" else number / 1000


def measure(home: Path, codec: str, record_count: int, rounds: int) -> Result:
    """Measure both brokers over the same files, in turn."""
    kafka = made_by_kafka(home / f"node-{codec}")
    size_bytes = fill(kafka.data_dir / f"{TOPIC}-0", codec, record_count)
    fresh = home / f"fresh-{codec}"
    shutil.copytree(kafka.data_dir, fresh)
    times: dict[str, list[float]] = {"ours": [], "kafka": []}
    for number in range(rounds):
        for who in ("ours", "kafka") if number % 2 else ("kafka", "ours"):
            shutil.rmtree(kafka.data_dir)
            shutil.copytree(fresh, kafka.data_dir)
            times[who].append(time_of_cleaning(kafka, who))
            print(f"{codec} round {number + 1} {who}: {times[who][-1]:.2f} s", file=sys.stderr)
    ours_s, kafka_s = statistics.median(times["ours"]), statistics.median(times["kafka"])
    return Result(codec, record_count, size_bytes, ours_s, kafka_s)


def table(results: list[Result]) -> str:
    """Rows for docs/benchmarks.md."""
    head = "| codec | records/s, ours | records/s, Kafka | bytes/s, ours | bytes/s, Kafka | ours to Kafka's |"
    return "\n".join([head, "|---|---|---|---|---|---|", *(result.row() for result in results)])
