"""The output of a run: the lines of Kafka's tools, a table, JSON, and CSV."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

from odradek.cli.perf.histogram import Histogram
from odradek.cli.perf.load import Window
from odradek.cli.perf.run import Outcome

MIB = 1 << 20
PERCENTILES = (50.0, 95.0, 99.0, 99.9)
HEADINGS = ["LATENCY", "RECORDS", "AVG-MS", *(f"P{percent:g}" for percent in PERCENTILES), "MAX"]
# Kafka's columns of a consumer's test.
CONSUMER_COLUMNS = (
    "start.time",
    "end.time",
    "data.consumed.in.MB",
    "MB.sec",
    "data.consumed.in.nMsg",
    "nMsg.sec",
    "rebalance.time.ms",
    "fetch.time.ms",
    "fetch.MB.sec",
    "fetch.nMsg.sec",
)


def ms(value_us: float) -> float:
    return round(value_us / 1000, 3)


def producer_line(window: Window, seconds: float) -> str:
    """An interval, in the format of Kafka's producer test."""
    seconds = max(seconds, 1e-6)
    return (
        f"{window.acked} records sent, {window.acked / seconds:.1f} records/sec "
        f"({window.acked_bytes / seconds / MIB:.2f} MB/sec), {window.ack_us.mean / 1000:.1f} ms avg latency, "
        f"{window.ack_us.greatest / 1000:.1f} ms max latency"
    )


def producer_summary(window: Window, seconds: float) -> str:
    """The whole run, in the format of Kafka's producer test."""
    shown = ", ".join(f"{window.ack_us.percentile(p) / 1000:.1f} ms {p:g}th" for p in PERCENTILES)
    return f"{producer_line(window, seconds)}, {shown}."


def consumer_line(outcome: Outcome, started: datetime.datetime) -> str:
    """The whole run, in the format of Kafka's consumer test; without a group there are no rebalances."""
    total, seconds = outcome.total, outcome.seconds
    megabytes = total.read_bytes / MIB
    ended = started + datetime.timedelta(seconds=seconds)
    cells = [
        *(f"{when:%Y-%m-%d %H:%M:%S}:{when.microsecond // 1000:03}" for when in (started, ended)),
        f"{megabytes:.4f}",
        f"{megabytes / seconds:.4f}",
        str(total.read),
        f"{total.read / seconds:.4f}",
        "0",
        str(round(seconds * 1000)),
        f"{megabytes / seconds:.4f}",
        f"{total.read / seconds:.4f}",
    ]
    return ", ".join(cells)


def latency_rows(total: Window) -> list[list[object]]:
    """One row for each kind of latency."""
    rows = []
    for name, timed in _timed(total):
        shown = [timed.mean, *(timed.percentile(percent) for percent in PERCENTILES), timed.greatest]
        rows.append([name, timed.count, *(f"{value / 1000:.2f}" for value in shown)])
    return rows


def _timed(total: Window) -> list[tuple[str, Histogram]]:
    named = (
        ("due-to-sent", total.late_us),
        ("due-to-acknowledged", total.ack_us),
        ("due-to-read", total.read_us),
    )
    return [(name, timed) for name, timed in named if timed.count]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The whole run as JSON."""
    total, seconds = outcome.total, outcome.seconds
    return {
        "seconds": round(seconds, 3),
        "sent": total.sent,
        "acknowledged": total.acked,
        "failed": total.failed,
        "read": total.read,
        "lost": outcome.lost,
        "repeated": outcome.repeated,
        "unsure": outcome.unsure,
        "errors": total.errors,
        "records_per_second": round((total.acked or total.read) / seconds, 1),
        "bytes_per_second": round((total.acked_bytes or total.read_bytes) / seconds),
        "latency_ms": {name.replace("-", "_"): _latency_json(timed) for name, timed in _timed(total)},
    }


def _latency_json(timed: Histogram) -> dict[str, float]:
    percentiles = {f"p{percent:g}": ms(timed.percentile(percent)) for percent in PERCENTILES}
    return {"count": timed.count, "avg": ms(timed.mean), **percentiles, "max": ms(timed.greatest)}


def write_csv(path: Path, outcome: Outcome) -> None:
    """Write a line for each interval; percentiles are of the records acknowledged or read in it."""
    percents = [f"p{percent:g}" for percent in PERCENTILES]
    heading = ["end_s", "seconds", "sent", "acknowledged", "acknowledged_bytes", "failed", "read", "read_bytes"]
    heading += [f"{way}_{what}_ms" for way in ("late", "ack", "read") for what in ("avg", *percents, "max")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(heading)
        before_s = 0.0
        for end_s, each in outcome.windows:
            row: list[object] = [round(end_s, 3), round(end_s - before_s, 3), each.sent, each.acked]
            row += [each.acked_bytes, each.failed, each.read, each.read_bytes]
            for timed in (each.late_us, each.ack_us, each.read_us):
                row += _csv_cells(timed)
            writer.writerow(row)
            before_s = end_s


def _csv_cells(timed: Histogram) -> list[object]:
    if not timed.count:
        return [""] * (len(PERCENTILES) + 2)
    return [ms(timed.mean), *(ms(timed.percentile(percent)) for percent in PERCENTILES), ms(timed.greatest)]
