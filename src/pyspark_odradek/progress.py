"""The progress of a streaming query after each batch, as numbers for an operator.

Spark reports progress as nested JSON whose offsets are each source's own. Those of topics, ours and those of Spark's
own Kafka source, tell how far a query is behind. This module knows no session and no metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pyspark_odradek.client.offsets import Positions, TopicPartition, from_json


class StateSize(NamedTuple):
    """The size of the state of one operator of a query."""

    operator: str
    rows: int
    memory_bytes: int


@dataclass(frozen=True)
class Progress:
    """One report of a query.

    `query` is its name, or its id where it has none: both stay over restarts. `lags` has the offsets of each partition
    that lie behind what the batch read, and is empty for sources that are no topics. `watermark_s` is in seconds since
    1970 UTC, None where the query has none.
    """

    query: str
    batch_id: int
    rows: int
    batch_ms: int
    input_rows_per_s: float
    processed_rows_per_s: float
    lags: dict[TopicPartition, int]
    states: tuple[StateSize, ...]
    watermark_s: float | None

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


def read_progress(report: Mapping[str, Any]) -> Progress:
    """Read `StreamingQueryProgress`, as its JSON has it or as `query.lastProgress` gives it."""
    lags: dict[TopicPartition, int] = {}
    for source in report.get("sources") or ():
        for partition, behind in (lags_of(source) or {}).items():
            lags[partition] = lags.get(partition, 0) + behind
    return Progress(
        query=report.get("name") or str(report["id"]),
        batch_id=report["batchId"],
        rows=report.get("numInputRows") or 0,
        batch_ms=report.get("batchDuration") or 0,
        input_rows_per_s=rate_of(report.get("inputRowsPerSecond")),
        processed_rows_per_s=rate_of(report.get("processedRowsPerSecond")),
        lags=lags,
        states=tuple(states_of(report)),
        watermark_s=_seconds((report.get("eventTime") or {}).get("watermark")),
    )


def lags_of(source: Mapping[str, Any]) -> dict[TopicPartition, int] | None:
    """Offsets that a source's topics had beyond what the batch read; None where its source is no topic."""
    end, latest = positions_of(source.get("endOffset")), positions_of(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return {partition: max(0, offset - end.get(partition, 0)) for partition, offset in latest.items()}


def states_of(report: Mapping[str, Any]) -> Iterator[StateSize]:
    """Operators of one name are distinguished by a number: a query may have two joins."""
    seen: dict[str, int] = {}
    for operator in report.get("stateOperators") or ():
        name = operator.get("operatorName") or "state"
        seen[name] = seen.get(name, 0) + 1
        label = name if seen[name] == 1 else f"{name}-{seen[name]}"
        yield StateSize(label, operator.get("numRowsTotal") or 0, operator.get("memoryUsedBytes") or 0)


def positions_of(offset: Any) -> Positions | None:
    """Offsets of topics; None for what another kind of source has."""
    try:
        found = from_json(json.loads(offset) if isinstance(offset, str) else offset)
        return found if all(type(each) is int for each in found.values()) else None
    except (AttributeError, TypeError, ValueError):
        return None


def rate_of(value: Any) -> float:
    """Rows a second; 0 for what is not a number: Spark says NaN, or a text, where a batch took no time."""
    rate = float(value or 0.0)
    return rate if 0.0 <= rate < float("inf") else 0.0


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
