"""The page docs/benchmarks.md, as text."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.brokers import KAFKA_HEAP
from bench.cells import PARTITIONS
from bench.codec_bench import CodecCost
from bench.generator import LoadResult
from tests.interop.librdkafka_suite import VERSION as LIBRDKAFKA_VERSION
from tests.support.nodes.apache_kafka import VERSION as KAFKA_VERSION

# Notes of a person about the numbers; kept when the numbers are measured again.
NOTES = Path(__file__).with_name("notes.md")


def write_page(
    table: str,
    nodes: Mapping[str, tuple[float, float, float]],
    costs: Mapping[int, LoadResult],
    codec: Sequence[CodecCost],
    machine: Mapping[str, str],
    rounds: int,
    seconds: float,
    took_s: float,
) -> str:
    """The whole page.

    Args:
        table: the rows, as Markdown.
        nodes: broker → seconds to the first record, MiB of memory idle, MiB after load.
        costs: size of a record → the generator against librdkafka's mock cluster.
        codec: the cost of decoding requests and encoding responses.
        machine: a description of the machine.
        rounds: the number of rounds that counted, and so of measurements of each cell against each broker.
        seconds: the seconds of each run.
        took_s: the seconds of the whole benchmark.
    """
    kafka, ours = nodes["Apache Kafka"], nodes["Odradek"]
    generator = [
        f"| {size} B | {result.records_per_s:,.0f} | {result.raw['cpu_s'] / result.raw['acked'] * 1e6:.2f} |"
        for size, result in costs.items()
    ]
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Odradek beside Apache Kafka on the same machine, one node each, both running all the",
        f"time, under one load generator (`bench/load.c`). {rounds} rounds after one that warms up; in each round a",
        "cell is measured against both, one after the other, and the first one alternates. A ratio above 1 means",
        "that Odradek does better; it is taken within a round, and the table shows the median of the rounds.",
        "",
        f"- measured {datetime.date.today().isoformat()}, {took_s / 60:.0f} minutes, {seconds:.1f} s a run",
        f"- Odradek {importlib.metadata.version('odradek')}, Apache Kafka {KAFKA_VERSION} with a heap of {KAFKA_HEAP},",
        f"  librdkafka {LIBRDKAFKA_VERSION}, {PARTITIONS} partitions, replication factor 1, default settings",
        *(f"- {name}: {value}" for name, value in machine.items()),
        "- generator and brokers share the processor; processor seconds are the broker's own, user and kernel",
        "",
        table,
        "",
        "| node | Apache Kafka | Odradek | ratio |",
        "|---|---|---|---|",
        f"| start to first acknowledged record, s | {kafka[0]:.2f} | {ours[0]:.2f} | {kafka[0] / ours[0]:.1f} |",
        f"| memory idle, MiB | {kafka[1]:.0f} | {ours[1]:.0f} | {kafka[1] / ours[1]:.1f} |",
        f"| memory after load, MiB | {kafka[2]:.0f} | {ours[2]:.0f} | {kafka[2] / ours[2]:.1f} |",
        "",
        "What the generator itself can do and costs, against librdkafka's mock cluster in its own process:",
        "",
        "| record | records/s | CPU s per million records |",
        "|---|---|---|",
        *generator,
        "",
        "The codec of the protocol, microseconds for one message, beside those of kio and kafka-python in the same run",
        "(`python -m bench.codec_bench`):",
        "",
        "| message | aim | Odradek | kio | kafka-python |",
        "|---|---|---|---|---|",
        *(
            f"| {cost.what} | {cost.aim_us} | {cost.ours_us:.1f} | {cost.kio_us:.1f} | {cost.kafka_python_us:.1f} |"
            for cost in codec
        ),
    ]
    if NOTES.exists():
        lines += ["", NOTES.read_text().strip()]
    return "\n".join(lines) + "\n"
