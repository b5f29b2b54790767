"""Records of the topic of pipelines' progress: valid statuses, and records that are skipped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.client.pipeline_progress import (
    MAX_FLOWS,
    MAX_FLOWS_IN_ALL,
    MAX_LETTERS,
    MAX_NUMBER,
    MAX_PIPELINES,
    apply_record,
    retain_newest,
)

FLOW: dict[str, Any] = {"flow": "visits", "target": "t", "status": "running", "rows_read": 5, "rate": 1.5, "lag": None}
STATUS: dict[str, Any] = {
    "pipeline": "shop",
    "mode": "triggered",
    "state": "running",
    "started": 1.5,
    "updated": 2.5,
    "error": "",
    "flows": [FLOW],
}


def statuses(value: Any, key: bytes | None = b"shop") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    apply_record(found, key, value if value is None or isinstance(value, bytes) else json.dumps(value).encode())
    return found


def test_a_status_has_the_name_of_its_key() -> None:
    (status,) = statuses(STATUS, b"a name").values()
    assert (status["pipeline"], status["state"], status["started"], status["updated"]) == (
        "a name",
        "running",
        1.5,
        2.5,
    )
    (flow,) = status["flows"]
    assert (flow["rows_read"], flow["rate"], flow["lag"], flow["batches"], flow["error"]) == (5, 1.5, None, None, "")
    many = statuses({**STATUS, "flows": [FLOW] * (MAX_FLOWS + 1)})["shop"]["flows"]
    assert len(many) == MAX_FLOWS


def test_a_tombstone_removes_a_pipeline() -> None:
    found = statuses(STATUS)
    apply_record(found, b"other", None)
    assert list(found) == ["shop"]
    apply_record(found, b"shop", None)
    assert found == {}


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\xff", b"[]", b"7", b"{}", b"[" * 100_000),
        *({**STATUS, "flows": 7}, {**STATUS, "flows": [7]}, {**STATUS, "flows": [{}]}),
        {name: each for name, each in STATUS.items() if name != "updated"},
    ],
)
def test_invalid_statuses_are_skipped(value: Any) -> None:
    assert statuses(value) == {}


def test_values_that_are_no_numbers_are_none() -> None:
    (status,) = statuses({**STATUS, "flows": [{**FLOW, "rows_read": "<b>", "lag": True}]}).values()
    assert (status["flows"][0]["rows_read"], status["flows"][0]["lag"]) == (None, None)
    assert statuses({**STATUS, "started": "x"})["shop"]["started"] == 0


@pytest.mark.parametrize("number", ["1e999", "-Infinity", "NaN", "9" * 400, "9" * 5000])
def test_numbers_out_of_range_are_none(number: str) -> None:
    value = json.dumps({**STATUS, "updated": 7, "flows": [{**FLOW, "rate": 8}]})
    for status in statuses(value.replace("8", number).encode()).values():
        assert status["flows"][0]["rate"] is None
    for status in statuses(value.replace("7", number).encode()).values():
        assert status["updated"] == 0
    assert statuses({**STATUS, "updated": MAX_NUMBER})["shop"]["updated"] == MAX_NUMBER


def test_texts_are_truncated_and_valid_unicode() -> None:
    long = "x" * (MAX_LETTERS + 1)
    given = {**STATUS, "state": long, "error": long, "flows": [{**FLOW, "flow": long, "error": "\ud800"}]}
    ((name, status),) = statuses(given, long.encode()).items()
    (flow,) = status["flows"]
    assert {len(each) for each in (name, status["state"], status["error"], flow["flow"])} == {MAX_LETTERS + 1}
    assert name.endswith("x…")
    assert flow["error"] == "?"


def test_the_pipelines_that_wrote_last_are_kept() -> None:
    found: dict[str, dict[str, Any]] = {}
    for at in (*range(MAX_PIPELINES + 2), 0):
        apply_record(found, b"%d" % at, json.dumps(STATUS).encode())
    retain_newest(found)
    assert len(found) == MAX_PIPELINES
    assert next(iter(found)) == "3"
    assert list(found)[-1] == "0", "it wrote again"
    many = json.dumps({**STATUS, "flows": [FLOW] * MAX_FLOWS}).encode()
    for at in range(MAX_FLOWS_IN_ALL // MAX_FLOWS):
        apply_record(found, b"many %d" % at, many)
    retain_newest(found)
    assert list(found) == [f"many {at}" for at in range(MAX_FLOWS_IN_ALL // MAX_FLOWS)]
