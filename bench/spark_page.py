"""The page docs/benchmarks-spark.md, as text."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.brokers import machine
from tests.support.nodes.apache_kafka import VERSION as KAFKA_VERSION

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-spark.md"
NOTES = Path(__file__).with_name("notes-spark.md")
NAMES = {"odradek": "Brokers of Odradek", "kafka": f"Brokers of Apache Kafka {KAFKA_VERSION}"}


def page(
    tables: Mapping[str, Sequence[tuple[str, str, str, str]]], connector: str, records: int, rounds: int, took_s: float
) -> str:
    """The whole page.

    Args:
        tables: of which brokers -> rows of (what, Spark's connector, ours, ratio).
        connector: the jar that was measured beside ours.
        records: in each topic.
        rounds: that counted.
        took_s: the whole benchmark.
    """
    ours, spark = importlib.metadata.version("odradek"), importlib.metadata.version("pyspark")
    lines = [
        "# The Spark connector, beside Spark's own",
        "",
        'Written by `make bench-spark`: the same queries through `format("kafka")` and `format("odradek")`, on the',
        f"same brokers, in one run. {rounds} rounds after a small one that warms up; the two take turns within each,",
        "and the first one alternates. A ratio above 1 means that ours does better; it is taken within a round, and",
        "the table shows the median of the rounds. Rates include the start and the end of a query; CPU is that of JVM,",
        "Python and brokers together. A latency is the median of 40 records, sent one by one.",
        "",
        f"- measured {datetime.date.today().isoformat()}, in {took_s / 60:.0f} minutes; {records:,} records of about",
        "  8 + 100 bytes, 4 partitions, `local[2]`",
        f"- Odradek {ours}, Spark {spark}, `{connector}`",
        *(f"- {name}: {value}" for name, value in machine().items()),
        "",
        "Theirs parses JSON with `from_json`, ours in the source; theirs writes topics at least once, ours exactly",
        "once. Tables and Avro without a further jar are ours alone.",
    ]
    for kind, rows in tables.items():
        lines += ["", f"## {NAMES[kind]}", "", "| what | Spark's connector | ours | ratio |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    if NOTES.exists():
        lines += ["", NOTES.read_text().strip()]
    return "\n".join(lines) + "\n"
