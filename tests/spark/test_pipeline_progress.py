"""Reports of Spark's become a flow's progress; each batch counts once."""

from __future__ import annotations

from typing import Any

from pyspark_odradek.pipelines import report
from pyspark_odradek.pipelines.progress import Tally, lag_of
from pyspark_odradek.pipelines.running import Again


def batch(number: int, rows: int, **more: Any) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": rows, "processedRowsPerSecond": 10.0 * rows, **more}


def test_a_batch_counts_once_however_often_it_is_looked_at() -> None:
    tally = Tally("visits", "visits")
    tally.take([batch(0, 5), batch(1, 7, durationMs={"triggerExecution": 120})])
    tally.take([batch(1, 7, durationMs={"triggerExecution": 120}), batch(2, 0), batch(2, 3)])
    assert (tally.rows, tally.batches, tally.rate, tally.batch_ms) == (15, 3, 30.0, None)


def test_lag_is_what_the_topics_have_beyond_the_batch() -> None:
    source = {"endOffset": {"a": {"0": 5, "1": 2}}, "latestOffset": '{"a": {"0": 9, "1": 2, "2": 4}}'}
    assert lag_of(source) == 8
    assert lag_of({"endOffset": {"logOffset": 3}, "latestOffset": None}) is None
    assert lag_of({"endOffset": "no json", "latestOffset": "{}"}) is None


def test_state_and_lag_are_the_last_ones_even_of_an_idle_report() -> None:
    tally = Tally("visits", "visits")
    operators = [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 50}]
    sources = [{"endOffset": {"a": {"0": 5}}, "latestOffset": {"a": {"0": 6}}}]
    tally.take([batch(0, 5), batch(1, 0, stateOperators=operators, sources=sources)])
    assert (tally.state_rows, tally.state_bytes, tally.lag) == (7, 150, 1)


def test_expectations_are_summed_over_batches() -> None:
    tally = Tally("visits", "visits")
    for number in range(2):
        observed = {"expectations:visits": {"rows": 10, "count:short": 1, "quarantine:readable": 2}, "other": {"x": 1}}
        tally.take([batch(number, 10, observedMetrics=observed)])
    assert tally.expectations == {
        "short": {"action": "count", "rows": 20, "broken": 2},
        "readable": {"action": "quarantine", "rows": 20, "broken": 4},
    }


def test_the_status_tells_a_run_that_died_from_one_that_runs() -> None:
    tally = Tally("visits", "visits", rows=12, lag=None, rate=3.25, status="running")
    tally.expectations = {"short": {"action": "count", "rows": 12, "broken": 1}}
    status = {
        "pipeline": "shop",
        "mode": "continuous",
        "state": "running",
        "started": 0.0,
        "updated": 95.0,
        "error": "",
        "flows": [tally.as_json()],
    }
    text = report.text_of(status, 77, now=100.0)
    assert "shop: running (continuous, process 77), began 1970-01-01 00:00:00 UTC, as of 5 s ago" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("visits"))
    assert row == ["visits", "visits", "running", "12", "0", "-", "3.2", "-", "0", "0"]
    assert next(line.split() for line in text.splitlines() if "short" in line)[1:] == ["short", "count", "12", "1"]
    assert "shop: died" in report.text_of(status, None, now=100.0)


def test_a_flow_that_fails_starts_again_a_few_times_and_anew_after_a_batch() -> None:
    again = Again(2)
    assert not again.due(0.0, batches=3)
    assert not again.due(4.9, batches=3)
    assert again.due(5.0, batches=3)
    assert not again.due(20.0, batches=3), "the second pause is longer"
    assert not again.due(29.9, batches=3)
    assert again.due(30.0, batches=3)
    assert not again.due(40.0, batches=4), "it did a batch, and so it begins to count anew"
    assert again.due(45.0, batches=4)
    assert not again.due(50.0, batches=4)
    assert again.due(60.0, batches=4)
    assert not again.due(70.0, batches=4)
    assert again.given_up
    assert not again.due(1000.0, batches=4)
