"""The metrics of streaming queries: lag, rates, durations and state."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import OptionError
from pyspark_odradek.progress import StateSize, read_progress
from pyspark_odradek.query_metrics import METRICS, MetricsPage, QueryMetrics, publish
from tests.spark.queries import load_stream, numbered
from tests.support.clients.confluent import create_topic

REPORT: dict[str, Any] = {
    "id": "5a5a",
    "name": None,
    "batchId": 3,
    "batchDuration": 250,
    "numInputRows": 10,
    "inputRowsPerSecond": 5.0,
    "processedRowsPerSecond": "NaN",
    "eventTime": {"watermark": "2026-01-01T00:00:10.000Z"},
    "stateOperators": [
        {"operatorName": "stateStoreSave", "numRowsTotal": 7, "memoryUsedBytes": 1000},
        {"operatorName": "stateStoreSave", "numRowsTotal": 1, "memoryUsedBytes": 10},
    ],
    "sources": [
        {"endOffset": {"t": {"0": 5, "1": 9}}, "latestOffset": {"t": {"0": 8, "1": 9, "2": 4}}},
        {"endOffset": '{"u": {"0": 5}}', "latestOffset": '{"u": {"0": 6}}'},
        {"endOffset": 12, "latestOffset": None},
        {"endOffset": {"seconds": 3}, "latestOffset": {"seconds": {"now": "x"}}},
    ],
}


def test_a_report_is_read() -> None:
    found = read_progress(REPORT)
    assert (found.query, found.batch_id, found.rows, found.batch_ms) == ("5a5a", 3, 10, 250)
    assert (found.input_rows_per_s, found.processed_rows_per_s) == (5.0, 0.0)
    expected = {("t", 0): 3, ("t", 1): 0, ("t", 2): 4, ("u", 0): 1}
    assert found.lags == {TopicPartition(*partition): lag for partition, lag in expected.items()}
    assert found.lag == 8
    assert found.states == (StateSize("stateStoreSave", 7, 1000), StateSize("stateStoreSave-2", 1, 10))
    assert found.watermark_s == 1767225610.0


def test_a_report_of_a_query_that_has_nothing_yet() -> None:
    found = read_progress({"id": "5a5a", "name": "n", "batchId": 0, "sources": [{"endOffset": None}]})
    assert (found.query, found.lags, found.states, found.watermark_s) == ("n", {}, (), None)


def test_a_partition_that_is_gone_is_shown_no_more() -> None:
    metrics = QueryMetrics()
    metrics.update(read_progress(REPORT))
    metrics.update(read_progress(REPORT | {"sources": REPORT["sources"][1:]}))
    registry = metrics.registry
    of_u = {"query": "5a5a", "topic": "u", "partition": "0"}
    assert registry.get_sample_value("odradek_query_lag_offsets", of_u) == 1
    assert registry.get_sample_value("odradek_query_lag_offsets", of_u | {"topic": "t"}) is None
    assert registry.get_sample_value("odradek_query_rows_total", {"query": "5a5a"}) == 20


def test_the_docs_have_every_metric() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "spark-operations.md").read_text()
    for name, (kind, what, _) in METRICS.items():
        exposed = f"{name}_total" if kind is Counter else name
        assert f"`{exposed}`" in text, f"{exposed}: {what}"


def scrape(page: MetricsPage) -> dict[tuple[str, str], float]:
    """(name, labels but the query's) -> value, of the test's query alone: Spark's events of earlier ones are late."""
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("query") != "counted":
                continue
            labels = "-".join(value for label, value in sorted(sample.labels.items()) if label != "query")
            found[sample.name, labels] = sample.value
    return found


def scrape_until(page: MetricsPage, holds: Callable[[dict[tuple[str, str], float]], bool]) -> dict[Any, float]:
    """The page once a condition holds for it: Spark notifies its listeners later than its queries.

    A page may be made while a report is counted, and have one metric from before it and the next from behind it: so it
    is read once more.
    """
    deadline = time.monotonic() + 200
    while not holds(found := scrape(page)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return scrape(page)


@pytest.mark.timeout(600)
def test_a_query_that_lags_and_one_that_fails(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(100))
    page = MetricsPage(spark, "127.0.0.1:0")
    try:
        stream = load_stream(spark, odradek, subscribe=topic, maxOffsetsPerTrigger=40)
        counted = stream.groupBy("key").count().writeStream.outputMode("update").format("noop").queryName("counted")
        query = counted.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        lag = [("odradek_query_lag_offsets", f"{number}-{topic}") for number in range(2)]
        all_read = {("odradek_query_rows_total", ""): 100} | dict.fromkeys(lag, 0)
        found = scrape_until(page, lambda found: found.items() >= all_read.items())
        assert found["odradek_query_running", ""] == 1
        assert found["odradek_query_batch_seconds_count", ""] == found["odradek_query_batches_total", ""] >= 3
        assert found["odradek_query_state_rows", "stateStoreSave"] == 10
        assert found["odradek_query_state_bytes", "stateStoreSave"] > 0
        assert found["odradek_query_failures_total", ""] == 0
        query.stop()
        failing = stream.selectExpr("raise_error('no such row') x").writeStream.format("noop").queryName("counted")
        with pytest.raises(Exception, match="no such row"):
            failing.option("checkpointLocation", str(tmp_path / "other")).start().awaitTermination(200)
        found = scrape_until(page, lambda found: found["odradek_query_failures_total", ""] > 0)
        assert (found["odradek_query_failures_total", ""], found["odradek_query_running", ""]) == (1, 0)
    finally:
        page.close()


def test_an_address_that_cannot_be(spark: Any) -> None:
    with pytest.raises(OptionError, match="'9405' is not host:port"):
        publish(spark, "9405")
    page = MetricsPage(spark, "127.0.0.1:0")
    try:
        with pytest.raises(OptionError, match="cannot be served"):
            MetricsPage(spark, f"127.0.0.1:{page.port}")
    finally:
        page.close()
