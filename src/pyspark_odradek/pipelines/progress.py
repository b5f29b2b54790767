"""The progress of a flow, from Spark's reports of its micro-batches. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark_odradek.expectations import OBSERVED, ROWS
from pyspark_odradek.progress import lags_of, rate_of, states_of


@dataclass
class Tally:
    """One flow's progress in this run.

    Attributes:
        rows_read: Spark's numInputRows, of all batches.
        rows_written: the sink's numOutputRows, of all batches; None where the sink reports none.
        lag: records of the sources that the last batch did not read; None where unknown.
        rate: rows read a second, of the last batch that had rows.
        batch_ms: duration of that batch.
        last_read_batch_id, last_written_batch_id: the last batches that the counts include.
    """

    flow: str
    target: str
    streaming: bool = True
    status: str = "waiting"
    rows_read: int = 0
    rows_written: int | None = None
    batches: int = 0
    lag: int | None = None
    rate: float | None = None
    batch_ms: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    expectations: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: str = ""
    last_read_batch_id: int = -1
    last_written_batch_id: int = -1

    def count_reports(self, reports: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Count the reports of new batches; returns the reports with rows that were read."""
        new_reports = []
        for report in reports:
            self._update_lag_and_state(report)
            self._count_written(report)
            batch_id = int(report["batchId"])
            if not report.get("numInputRows") or batch_id <= self.last_read_batch_id:
                continue  # an idle trigger reports the number of the batch to come
            self.last_read_batch_id = batch_id
            self.batches += 1
            self.rows_read += int(report["numInputRows"])
            self.rate = rate_of(report.get("processedRowsPerSecond"))
            self.batch_ms = report.get("durationMs", {}).get("triggerExecution")
            self._count_expectations(report.get("observedMetrics") or {})
            new_reports.append(report)
        return new_reports

    def _count_written(self, report: Mapping[str, Any]) -> None:
        """Count the sink's rows. A batch that reads none may write some: windows that the watermark has closed."""
        batch_id, count = int(report["batchId"]), (report.get("sink") or {}).get("numOutputRows")
        # Spark reports -1 for a trigger without a batch, and for sinks that do not count.
        if count is not None and int(count) >= 0 and batch_id > self.last_written_batch_id:
            self.last_written_batch_id = batch_id
            self.rows_written = (self.rows_written or 0) + int(count)

    def _update_lag_and_state(self, report: Mapping[str, Any]) -> None:
        """Take the lag and the size of the state from a report; an idle trigger's has them, too."""
        behind = [lag for source in report.get("sources", ()) if (lag := lag_of(source)) is not None]
        self.lag = sum(behind) if behind else self.lag
        if states := tuple(states_of(report)):
            self.state_rows = sum(state.rows for state in states)
            self.state_bytes = sum(state.memory_bytes for state in states)

    def _count_expectations(self, metrics: Mapping[str, Any]) -> None:
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
        """The fields for the notes and `--json`. A materialized view reports no batches: its counts are None."""
        content = asdict(self)
        del content["last_read_batch_id"], content["last_written_batch_id"]
        if not self.streaming:
            content |= {"rows_read": None, "batches": None, "state_rows": None, "state_bytes": None}
        return content


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Records of a source's topics behind a batch's end offsets; None where the source reports no latest offsets."""
    lags = lags_of(source)
    return None if lags is None else sum(lags.values())
