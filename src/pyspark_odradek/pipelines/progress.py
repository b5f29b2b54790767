"""What a flow has done and how far behind it is, from the progress that Spark reports of each batch. Plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark_odradek.expectations import OBSERVED, ROWS


@dataclass
class Tally:
    """One flow's progress in this run.

    `lag` is records that the sources had and the last batch did not take, None where no source tells; `rate` is rows a
    second while at work; `batch_ms` is the last batch's duration.
    """

    flow: str
    target: str
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

    def take(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Count reports in; those that were counted before are known by their batch."""
        for report in reports:
            self._look(report)
            batch_id = int(report["batchId"])
            if not report.get("numInputRows") or batch_id <= self.seen:
                continue  # an idle trigger reports the number of the batch to come
            self.seen = batch_id
            self.batches += 1
            self.rows += int(report["numInputRows"])
            self.rate = report.get("processedRowsPerSecond")
            self.batch_ms = report.get("durationMs", {}).get("triggerExecution")
            self._observed(report.get("observedMetrics") or {})

    def _look(self, report: Mapping[str, Any]) -> None:
        """What holds of the latest report whether it had rows or not."""
        behind = [lag for source in report.get("sources", ()) if (lag := lag_of(source)) is not None]
        self.lag = sum(behind) if behind else self.lag
        operators = report.get("stateOperators") or ()
        if operators:
            self.state_rows = sum(int(each.get("numRowsTotal", 0)) for each in operators)
            self.state_bytes = sum(int(each.get("memoryUsedBytes", 0)) for each in operators)

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
        """For the notes and `--json`."""
        content = asdict(self)
        del content["seen"]
        return content


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Records between what a batch took and what the topic had; None where the source does not tell in this form."""
    taken, there = (_positions(source.get(name)) for name in ("endOffset", "latestOffset"))
    if taken is None or there is None:
        return None
    return sum(max(0, offset - taken.get(partition, 0)) for partition, offset in there.items())


def _positions(told: Any) -> dict[tuple[str, str], int] | None:
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, Mapping) or not all(isinstance(each, Mapping) for each in told.values()):
        return None
    try:
        return {(topic, part): int(offset) for topic, parts in told.items() for part, offset in parts.items()}
    except (TypeError, ValueError):
        return None
