"""`odradek pipeline status`: the notes of a pipeline as text, without Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

# Heading -> field of `Tally`.
_COLUMNS = {
    "FLOW": "flow",
    "TO": "target",
    "STATUS": "status",
    "ROWS READ": "rows_read",
    "ROWS WRITTEN": "rows_written",
    "BATCHES": "batches",
    "LAG": "lag",
    "ROWS/S": "rate",
    "BATCH MS": "batch_ms",
    "STATE ROWS": "state_rows",
    "STATE BYTES": "state_bytes",
}


def text_of(status: Mapping[str, Any], runner: int | None, *, now: float) -> str:
    """One line about the pipeline, a table of its flows, and a table of its expectations."""
    lines = [_head(status, runner, now)]
    run_error = status.get("error") or ""
    if run_error:
        lines.append(f"error: {run_error}")
    rows = [[_cell(flow.get(name)) for name in _COLUMNS.values()] for flow in status["flows"]]
    lines += ["", *_table([tuple(_COLUMNS), *rows])]
    lines += [
        f"{f['flow']}: {f['error']}" for f in status["flows"] if f["status"] == "failed" and f["error"] not in run_error
    ]
    rules = _rules(status)
    if rules:
        lines += ["", *_table([("FLOW", "EXPECTATION", "ACTION", "ROWS", "BROKEN"), *rules])]
    return "\n".join(lines)


def _rules(status: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (flow["flow"], name, entry["action"], str(entry["rows"]), str(entry["broken"]))
        for flow in status["flows"]
        for name, entry in flow["expectations"].items()
    ]


def _head(status: Mapping[str, Any], runner: int | None, now: float) -> str:
    state = status["state"]
    if state in ("running", "catching up") and runner is None:
        state = "died"
    ago = max(0, round(now - status["updated"]))
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(status["started"]))
    process = f", process {runner}" if runner is not None else ""
    return f"{status['pipeline']}: {state} ({status['mode']}{process}), began {began}, as of {ago} s ago"


def by_target(status: Mapping[str, Any]) -> dict[str, str]:
    """The rows read and written by all flows of each target, and the status of each flow."""
    summaries = {}
    for target in dict.fromkeys(flow["target"] for flow in status["flows"]):
        flows = [flow for flow in status["flows"] if flow["target"] == target]
        counts = [*_sum_text(flows, "rows_read", "rows read"), *_sum_text(flows, "rows_written", "rows written")]
        summaries[target] = ", ".join([*counts, *dict.fromkeys(flow["status"] for flow in flows)])
    return summaries


def _sum_text(flows: Sequence[Mapping[str, Any]], name: str, label: str) -> list[str]:
    counts = [flow[name] for flow in flows if flow.get(name) is not None]
    return [f"{sum(counts):,} {label}"] if counts else []


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
