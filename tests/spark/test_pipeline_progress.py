"""Spark's reports become the progress of a flow; each batch counts once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from pyspark_odradek.pipelines import EXIT_FENCED, PipelineError, report
from pyspark_odradek.pipelines import __main__ as pipelines_main
from pyspark_odradek.pipelines.progress import Tally, lag_of
from pyspark_odradek.pipelines.running import (
    FLOW_EVENT,
    STARTS,
    RetryPolicy,
    event_messages,
    is_final,
    retry_transient,
)

BUSY = "visits: Python worker failed to connect back."


def batch(number: int, rows: int, **more: Any) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": rows, "processedRowsPerSecond": 10.0 * rows, **more}


def test_a_batch_counts_once_in_repeated_reports() -> None:
    tally = Tally("visits", "visits")
    tally.count_reports([batch(0, 5), batch(1, 7, durationMs={"triggerExecution": 120})])
    tally.count_reports([batch(1, 7, durationMs={"triggerExecution": 120}), batch(2, 0), batch(2, 3)])
    assert (tally.rows_read, tally.batches, tally.rate, tally.batch_ms) == (15, 3, 30.0, None)


def test_rows_written_are_the_rows_that_the_sink_reports() -> None:
    tally = Tally("visits", "visits")
    tally.count_reports([batch(0, 5, sink={"numOutputRows": -1})])
    assert tally.rows_written is None, "this sink does not count"
    tally.count_reports([batch(1, 5, sink={"numOutputRows": 2}), batch(2, 0, sink={"numOutputRows": -1})])
    closed_windows = batch(2, 0, sink={"numOutputRows": 4})
    tally.count_reports([closed_windows, closed_windows])
    assert (tally.rows_read, tally.rows_written) == (10, 6)


def test_lag_is_the_number_of_records_behind_the_batch() -> None:
    source = {"endOffset": {"a": {"0": 5, "1": 2}}, "latestOffset": '{"a": {"0": 9, "1": 2, "2": 4}}'}
    assert lag_of(source) == 8
    assert lag_of({"endOffset": {"logOffset": 3}, "latestOffset": None}) is None
    assert lag_of({"endOffset": "no json", "latestOffset": "{}"}) is None


def test_state_and_lag_are_the_last_ones_even_of_an_idle_report() -> None:
    tally = Tally("visits", "visits")
    operators = [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 50}]
    sources = [{"endOffset": {"a": {"0": 5}}, "latestOffset": {"a": {"0": 6}}}]
    tally.count_reports([batch(0, 5), batch(1, 0, stateOperators=operators, sources=sources)])
    assert (tally.state_rows, tally.state_bytes, tally.lag) == (7, 150, 1)


def test_expectations_are_summed_over_batches() -> None:
    tally = Tally("visits", "visits")
    for number in range(2):
        observed = {"expectations:visits": {"rows": 10, "count:short": 1, "quarantine:readable": 2}, "other": {"x": 1}}
        tally.count_reports([batch(number, 10, observedMetrics=observed)])
    assert tally.expectations == {
        "short": {"action": "count", "rows": 20, "broken": 2},
        "readable": {"action": "quarantine", "rows": 20, "broken": 4},
    }


def test_the_status_distinguishes_a_crashed_from_a_running_run() -> None:
    tally = Tally("visits", "visits", rows_read=12, rows_written=9, lag=None, rate=3.25, status="running")
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
    assert row == ["visits", "visits", "running", "12", "9", "0", "-", "3.2", "-", "0", "0"]
    assert next(line.split() for line in text.splitlines() if "short" in line)[1:] == ["short", "count", "12", "1"]
    assert "shop: died" in report.text_of(status, None, now=100.0)


def test_the_status_has_the_reason_of_each_flow_that_failed() -> None:
    flows = [Tally(name, name, status="failed", error=f"reason of {name}").as_json() for name in ("a", "b")]
    status = {"pipeline": "p", "mode": "triggered", "state": "failed", "started": 0.0, "updated": 0.0, "flows": flows}
    text = report.text_of({**status, "error": "a: reason of a"}, None, now=1.0)
    assert (text.count("reason of a"), text.count("b: reason of b")) == (1, 1)


def test_a_failing_flow_restarts_a_few_times_and_again_after_a_batch() -> None:
    again = RetryPolicy(2)
    assert not again.due(0.0, batches=3)
    assert not again.due(4.9, batches=3)
    assert again.due(5.0, batches=3)
    assert not again.due(20.0, batches=3), "the second pause is longer"
    assert not again.due(29.9, batches=3)
    assert again.due(30.0, batches=3)
    assert not again.due(40.0, batches=4), "it did a batch, and so the count starts again"
    assert again.due(45.0, batches=4)
    assert not again.due(50.0, batches=4)
    assert again.due(60.0, batches=4)
    assert not again.due(70.0, batches=4)
    assert again.given_up
    assert not again.due(1000.0, batches=4)


def test_a_flow_that_was_fenced_is_not_started_again() -> None:
    """Otherwise it would fence the driver that took over, whose next start would fence it."""
    trace = "[X] Query q: Traceback (most recent call last):\n  File y\n    raise FencedError(...)\n"
    fenced = f"{trace}pyspark_odradek.errors.FencedError: another run of this query has taken over its sink"
    assert is_final(fenced)
    attempt = fenced.replace("errors.FencedError: ", "errors.AttemptFencedError: ")
    assert not is_final(attempt), "that is a task's, which is tried again"


def test_the_exit_code_of_a_fenced_run_reaches_its_supervisor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fenced(*_: object) -> NoReturn:
        raise PipelineError("a: another run of this query has taken over", code=EXIT_FENCED)

    with pytest.raises(PipelineError) as raised:
        retry_transient(fenced, print, print)
    assert raised.value.code == EXIT_FENCED
    monkeypatch.setattr(pipelines_main, "_init", fenced)
    assert pipelines_main.main(json.dumps({"command": "init", "json": True})) == 6
    assert json.loads(capsys.readouterr().err)["exit_code"] == 6


def test_a_flow_that_has_lost_records_is_not_started_again() -> None:
    trace = "[X] Query q: Traceback (most recent call last):\n  File y\n    raise DataLossError(lost)\n"
    lost = f"{trace}pyspark_odradek.errors.DataLossError: data was lost: a-0: offsets 0 to 9"
    assert is_final(lost)
    assert not is_final(lost.replace("DataLossError: ", "ClusterError: "))
    again = RetryPolicy(2)
    assert not again.due(0.0, batches=3, final=is_final(lost))
    assert again.given_up
    assert not again.due(1000.0, batches=3)


@pytest.mark.parametrize(
    ("reasons", "attempts", "raised"),
    [
        ([], 1, None),
        ([BUSY], 2, None),
        ([BUSY] * STARTS, STARTS, "run it again when less else runs there"),
        (["a: no such column b"], 1, "no such column b"),
        ([BUSY, "a: no such column b"], 2, "no such column b"),
    ],
)
def test_a_run_is_retried_after_transient_errors(reasons: list[str], attempts: int, raised: str | None) -> None:
    """On a busy machine Spark's timeout of ten seconds for a Python process expires; a new start loses nothing."""
    said: list[str] = []
    paused: list[float] = []
    asked: list[int] = []

    def attempt(number: int) -> str:
        asked.append(number)
        if number < len(reasons):
            raise PipelineError(reasons[number])
        return "done"

    if raised is None:
        assert retry_transient(attempt, said.append, paused.append) == "done"
    else:
        with pytest.raises(PipelineError, match=raised):
            retry_transient(attempt, said.append, paused.append)
    assert asked == list(range(attempts))
    assert paused == [5.0, 10.0, 15.0][: attempts - 1]
    assert said == [f"starts again in {pause:g} s after: {BUSY}" for pause in paused]


def test_a_view_has_no_batches_and_several_flows_of_one_table_are_summed() -> None:
    flows = [
        Tally("a", "t", rows_read=5, status="done"),
        Tally("b", "t", rows_read=7, rows_written=1200, status="failed"),
    ]
    flows += [Tally("v", "v", streaming=False, status="done")]
    status = {"flows": [flow.as_json() for flow in flows]}
    assert report.by_target(status) == {"t": "12 rows read, 1,200 rows written, done, failed", "v": "done"}
    assert (status["flows"][2]["rows_read"], status["flows"][2]["state_bytes"]) == (None, None)


def test_a_run_is_polled_between_events_of_spark() -> None:
    silent = threading.Event()

    def answers() -> Iterator[dict[str, Any]]:
        yield {"other": 1}
        yield {"pipeline_event_result": SimpleNamespace(event=SimpleNamespace(message="Flow a is RUNNING."))}
        silent.wait(60)
        raise ValueError("it broke")

    reported = event_messages(answers())
    assert next(message for message in reported if message is not None) == "Flow a is RUNNING."
    assert next(reported) is None
    silent.set()
    with pytest.raises(ValueError, match="it broke"):
        next(message for message in reported if message is not None)


@pytest.mark.parametrize(
    ("message", "reported"),
    [
        ("Flow spark_catalog.default.a is QUEUED.", ("spark_catalog.default.a", "QUEUED", ".", None)),
        (
            "Flow spark_catalog.default.`a is B` has COMPLETED.",
            ("spark_catalog.default.`a is B`", "COMPLETED", ".", None),
        ),
        (
            "Flow 'c.d.a' SKIPPED due to upstream failure(s).",
            ("c.d.a", "SKIPPED", " due to upstream failure(s).", None),
        ),
        ("Flow 'c.d.a' has FAILED.\nError: no\nat all", ("c.d.a", "FAILED", ".", "no\nat all")),
        (
            "Flow 'a' has FAILED more than 2 times and will not be restarted.\nError: no",
            ("a", "FAILED", " more than 2 times and will not be restarted.", "no"),
        ),
        ("Run is RUNNING.", None),
    ],
)
def test_messages_of_sparks_events_are_parsed(message: str, reported: tuple[str | None, ...] | None) -> None:
    said = FLOW_EVENT.fullmatch(message)
    assert (said and said.group("flow", "word", "rest", "reason")) == reported
