"""The examples of README and docs/spark.md about reading run as a reader would paste them, from top to bottom.

A test replaces only addresses, topics and folders in the code of the pages.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.spark.queries import numbered
from tests.support.clients.confluent import await_ends, create_topic, read_committed

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "address": "127.0.0.1:9092",
    "greetings": '"greetings"',
    "counts": '"counts"',
    "checkpoint": "checkpoints/counts",
    "clicks": "clicks",
}


def pipeline(page: str) -> str:
    (found,) = [block for block in blocks_of(page, "python") if "from pyspark_odradek import session" in block]
    return found


def blocks_of(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def replaced(code: str, **own: str) -> str:
    """The code with a test's own names; each of the page's has to be there."""
    for name, value in own.items():
        assert PAGES[name] in code, f"the page has no {PAGES[name]}"
        code = code.replace(PAGES[name], value)
    return code


def test_the_pages_agree() -> None:
    assert pipeline("README.md") == pipeline("docs/spark.md")


def test_the_pipeline_and_the_sink_behind_it_run(
    spark: Any, odradek: str, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    create_topic(odradek, topic)
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    producer = Producer({"bootstrap.servers": odradek})
    for number in range(200):  # the last ten close the windows of the others
        stamp_ms = hour_ago_ms if number < 190 else hour_ago_ms + 3_600_000
        producer.produce(topic, b"%d" % number, b"%d" % (number % 10), timestamp=stamp_ms)
    assert producer.flush(30) == 0
    names: dict[str, Any] = {}
    first, second = blocks_of("docs/spark.md", "python")[:2]
    exec(replaced(first, address=odradek, greetings=f'"{topic}"'), names)  # the code is that of our own page
    query = names["query"]
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 200
    assert query.exception() is None
    own = {"address": odradek, "counts": f'"{topic}-counts"', "checkpoint": str(tmp_path / "checkpoint")}
    exec(replaced(second, **own), names)
    (sink,) = [query for query in spark.streams.active if query.name is None]
    try:
        sink.processAllAvailable()  # which makes the topic
        deadline = time.monotonic() + 150
        while not (records := read_committed(odradek, f"{topic}-counts")):
            assert time.monotonic() < deadline and sink.isActive, sink.exception()
            time.sleep(0.2)
        counted = {record.key(): json.loads(record.value() or b"")["count"] for record in records}
        assert counted == {b"%d" % n: 19 for n in range(10)}
    finally:
        sink.stop()


def test_the_sql_runs(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(30))
    table = topic.replace("-", "_")
    found: list[Any] = []
    code = "".join(blocks_of("docs/spark.md", "sql"))
    code = replaced(code, address=odradek, clicks=table).replace(f"subscribe '{table}'", f"subscribe '{topic}'")
    try:
        for statement in filter(str.strip, code.split(";")):
            frame = spark.sql(statement)
            if not frame.isStreaming:
                found.append(frame.collect())
                continue
            query = frame.writeStream.format("memory").queryName(f"{table}_stream").trigger(availableNow=True).start()
            assert query.awaitTermination(150)
            found.append(spark.table(f"{table}_stream").count())
        assert found == [[], [(30,)], [], [(30,)], 30, []]
        await_ends(odradek, topic)
        assert spark.table(table).count() == 31, "with the row that was inserted"
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        spark.sql(f"DROP VIEW IF EXISTS {table}_now")
