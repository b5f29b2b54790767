"""Compares the lake, the sessions and the rates with the lines in the topic."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from examples.activity import lines, pipeline
from examples.topics import records


@dataclass(frozen=True)
class Proof:
    """Counts.

    Attributes:
        hours: lines in each folder of the lake.
        lost: lines that are not in the folder of their hour.
        twice: lines that are there more often than in the topic.
        reported: requests in the minutes of the topic error-rates.
        waiting: requests in minutes that are not over yet.
        late: requests that came when their minute had been reported; they are in the lake alone.
        wrong: minutes that were reported twice, or with more requests than there are.
        alerts: minutes for which an alert was raised.
    """

    hours: Counter[str]
    lost: int
    twice: int
    sessions: int
    hits: int
    minutes: int
    reported: int
    waiting: int
    late: int
    wrong: int
    alerts: int

    @property
    def holds(self) -> bool:
        """Whether each line is in the lake once, and no minute was reported twice or wrong."""
        return not (self.lost or self.twice or self.wrong)

    def __str__(self) -> str:
        folders = [f"lake, hour {hour}: {count:,} lines" for hour, count in sorted(self.hours.items())]
        hidden = [f"... {len(folders) - 12:,} more hours"] if len(folders) > 12 else []
        return "\n".join(
            [
                *folders[:12],
                *hidden,
                f"{self.sessions:,} sessions that are over, {self.hits:,} hits in them",
                f"{self.minutes:,} minutes reported, {self.reported:,} requests in them, {self.alerts:,} alerts; "
                f"{self.waiting:,} wait for their minute's end, {self.late:,} came after it",
                f"{self.hours.total():,} lines in the lake: {self.lost:,} lost, {self.twice:,} twice; "
                f"{self.wrong:,} minutes reported wrong",
            ]
        )


def prove(bootstrap: str, folder: Path) -> Proof:
    """Read the topics and the tables to their ends."""
    hours, requests = Counter[str](), Counter[datetime]()
    for message in records(bootstrap, pipeline.LINES):
        at = time_of((message.value() or b"").decode())
        hours[at.strftime("%Y-%m-%d-%H") if at else pipeline.UNREADABLE] += 1
        if at is not None:
            requests[at.replace(second=0)] += 1
    kept = Counter(str(row["hour"]) for row in rows_of(folder / "lake", "hour"))
    sessions = rows_of(folder / "sessions", "hits")
    rates = [json.loads(message.value() or b"{}") for message in records(bootstrap, pipeline.RATES, settled=True)]
    minutes = Counter({datetime.fromisoformat(each["minute"]): int(each["requests"]) for each in rates})
    twice, last = len(rates) - len(minutes), max(minutes, default=datetime.min.replace(tzinfo=UTC))
    return Proof(
        hours=kept,
        lost=(hours - kept).total(),
        twice=(kept - hours).total(),
        sessions=len(sessions),
        hits=sum(row["hits"] for row in sessions),
        minutes=len(minutes),
        reported=minutes.total(),
        waiting=sum(count for minute, count in requests.items() if minute not in minutes and minute > last),
        late=sum(max(0, count - minutes[minute]) for minute, count in requests.items() if minute <= last),
        wrong=twice + sum(count > requests[minute] for minute, count in minutes.items()),
        alerts=sum(1 for _ in records(bootstrap, pipeline.ALERTS, settled=True)),
    )


def time_of(line: str) -> datetime | None:
    """When a request came, in UTC; None where the lake must hold the line as unreadable."""
    at = lines.time_of(line) if pipeline.is_combined(line) else None
    return at.astimezone(UTC) if at else None


def rows_of(path: Path, column: str) -> list[dict[str, Any]]:
    """One column of a Delta table; nothing where there is no table yet."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table(columns=[column]).to_pylist()
    return found
