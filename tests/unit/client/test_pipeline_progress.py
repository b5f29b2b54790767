"""Records of the topic of pipelines' progress: what is taken for a status, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.client.pipeline_progress import MAX_FLOWS, take

FLOW: dict[str, Any] = {"flow": "visits", "target": "t", "status": "running", "rows": 5, "rate": 1.5, "lag": None}
STATUS: dict[str, Any] = {
    "pipeline": "shop",
    "mode": "triggered",
    "state": "running",
    "started": 1.5,
    "updated": 2.5,
    "error": "",
    "flows": [FLOW],
}


def taken(value: Any, key: bytes | None = b"shop") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    take(found, key, value if value is None or isinstance(value, bytes) else json.dumps(value).encode())
    return found


def test_a_status_is_taken_by_the_name_of_its_key() -> None:
    (status,) = taken(STATUS, b"a name").values()
    assert (status["pipeline"], status["state"], status["started"], status["updated"]) == (
        "a name",
        "running",
        1.5,
        2.5,
    )
    (flow,) = status["flows"]
    assert (flow["rows"], flow["rate"], flow["lag"], flow["batches"], flow["error"]) == (5, 1.5, None, None, "")
    many = taken({**STATUS, "flows": [FLOW] * (MAX_FLOWS + 1)})["shop"]["flows"]
    assert len(many) == MAX_FLOWS


def test_a_record_without_a_value_takes_a_pipeline_away() -> None:
    found = taken(STATUS)
    take(found, b"other", None)
    assert list(found) == ["shop"]
    take(found, b"shop", None)
    assert found == {}


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\xff", b"[]", b"7", b"{}", b"[" * 100_000),
        *({**STATUS, "flows": 7}, {**STATUS, "flows": [7]}, {**STATUS, "flows": [{}]}),
        {name: each for name, each in STATUS.items() if name != "updated"},
    ],
)
def test_what_is_no_status_is_left_out(value: Any) -> None:
    assert taken(value) == {}


def test_what_is_no_number_is_none() -> None:
    (status,) = taken({**STATUS, "flows": [{**FLOW, "rows": "<b>", "lag": True}]}).values()
    assert (status["flows"][0]["rows"], status["flows"][0]["lag"]) == (None, None)
    assert taken({**STATUS, "started": "x"})["shop"]["started"] == 0
