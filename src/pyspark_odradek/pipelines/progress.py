"""What a flow has done and how far behind it is, from the progress that Spark reports of each batch. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark_odradek.expectations import OBSERVED, ROWS
from pyspark_odradek.progress import lags_of, rate_of, states_of


@dataclass
class Tally:
    """One flow's progress in this run.

    `lag` is records that the sources had and the last batch did not take, None where it is unknown; `rate` is rows a
    second while at work; `batch_ms` is the last batch's duration.
    """

    flow: str
    target: str
    streaming: bool = True
    status: str = "waiting"
    rows: int = 0
    batches: int = 0
    lag: int | None = None
    rate: float | None = None
    batch_ms: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    expectations: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: str = ""
    seen: int = -1

    def take(self, reports: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Count reports in; those that were counted before are known by their batch. Returns those that were not."""
        fresh = []
        for report in reports:
            self._look(report)
            batch_id = int(report["batchId"])
            if not report.get("numInputRows") or batch_id <= self.seen:
                continue  # an idle trigger reports the number of the batch to come
            self.seen = batch_id
            self.batches += 1
            self.rows += int(report["numInputRows"])
            self.rate = rate_of(report.get("processedRowsPerSecond"))
            self.batch_ms = report.get("durationMs", {}).get("triggerExecution")
            self._observed(report.get("observedMetrics") or {})
            fresh.append(report)
        return fresh

    def _look(self, report: Mapping[str, Any]) -> None:
        """What holds of the latest report whether it had rows or not."""
        behind = [lag for source in report.get("sources", ()) if (lag := lag_of(source)) is not None]
        self.lag = sum(behind) if behind else self.lag
        if states := tuple(states_of(report)):
            self.state_rows = sum(state.rows for state in states)
            self.state_bytes = sum(state.memory_bytes for state in states)

    def _observed(self, metrics: Mapping[str, Any]) -> None:
        for name, counts in metrics.items():
            if not name.startswith(OBSERVED + ":"):
                continue
            rows = int(counts.get(ROWS) or 0)
            for rule, broken in counts.items():
                if rule == ROWS:
                    continue
                action, _, short = rule.partition(":")
                entry = self.expectations.setdefault(short, {"action": action, "rows": 0, "broken": 0})
                entry["rows"] += rows
                entry["broken"] += int(broken or 0)

    def as_json(self) -> dict[str, Any]:
        """For the notes and `--json`. What is computed whole reports no batches, so that its rows are not known."""
        content = asdict(self)
        del content["seen"]
        if not self.streaming:
            content |= {"rows": None, "batches": None, "state_rows": None, "state_bytes": None}
        return content


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Records between what a batch took and what the topics had; None where the source does not tell."""
    lags = lags_of(source)
    return None if lags is None else sum(lags.values())
