"""The report of a run: a chart, and a page of one file that needs no network and can be read on a phone."""

from __future__ import annotations

import base64
import html
import io
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb

from examples.flights.proof import Proof
from examples.flights.report import QUESTIONS, are_numbers, text_of

BY_DAY = """
    SELECT origin, hour::DATE AS day, sum(delay_minutes) / sum(departed) AS mean_delay
    FROM delays GROUP BY ALL HAVING sum(departed) > 0 ORDER BY day"""
BY_HOUR = """
    SELECT origin, extract('hour' FROM hour AT TIME ZONE 'America/New_York') AS local_hour,
           sum(delay_minutes) / sum(departed) AS mean_delay
    FROM delays GROUP BY ALL HAVING sum(departed) > 100 ORDER BY local_hour"""
COLOURS = {"EWR": "#1b6ca8", "JFK": "#d1495b", "LGA": "#66a182"}
VERSIONS = ("odradek", "pyspark", "deltalake", "duckdb", "confluent-kafka")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 1rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; line-height: 1.3; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 0; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
.charts div { flex: 1 1 20rem; }
.charts img { width: 100%; height: auto; }
.table { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: bottom; }
.number { text-align: right; }
td.number { white-space: nowrap; }
.holds { color: #1a7f37; }
.fails { color: #c00; font-weight: bold; }
.about { color: #555; font-size: .9rem; }
@media (max-width: 40rem) {
  body { font-size: 15px; margin: .5rem auto; padding: 0 .6rem; }
  table { font-size: .85rem; }
  td, th { padding: .25rem .3rem; }
}
"""


@dataclass(frozen=True)
class Run:
    """Facts about a run beside its results."""

    days: int
    seconds: float
    killed_on: str | None
    ended: datetime

    @property
    def text(self) -> str:
        """When, how much, and with what."""
        versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
        return (
            f"{self.ended.astimezone(UTC):%Y-%m-%d %H:%M} UTC. "
            f"{self.days} days of flights in {self.seconds:.0f} seconds, "
            f"on {os.cpu_count()} cores, {platform.system()} {platform.machine()}. "
            f"Versions: {versions}, Python {platform.python_version()}."
        )


def draw(database: duckdb.DuckDBPyConnection, path: Path, killed_on: str | None) -> None:
    """The chart: delays through the year, with the day on which a leader was killed, and through the day."""
    figure, (year, day) = _plots(13, 4.5, 2, width_ratios=(3, 2))
    _draw_year(year, database, killed_on)
    _draw_day(day, database)
    figure.savefig(path, dpi=120)


def charts(database: duckdb.DuckDBPyConnection, killed_on: str | None) -> list[tuple[str, bytes]]:
    """The halves of the chart, each with a text for who cannot see it: a phone shows one below the other."""
    found = []
    halves: tuple[tuple[str, Callable[[Any], None]], ...] = (
        ("Mean departure delay through the year, in minutes", lambda axes: _draw_year(axes, database, killed_on)),
        ("Mean departure delay through the day, in minutes", lambda axes: _draw_day(axes, database)),
    )
    for text, half in halves:
        figure, (axes,) = _plots(5.2, 3.6, 1)
        half(axes)
        data = io.BytesIO()
        figure.savefig(data, dpi=160)
        found.append((text, data.getvalue()))
    return found


def _plots(width: float, height: float, count: int, **options: Any) -> tuple[Any, Sequence[Any]]:
    """A figure that no window shows, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, squeeze=False, **options)[0]


def _draw_year(axes: Any, database: duckdb.DuckDBPyConnection, killed_on: str | None) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    rows = database.execute(BY_DAY).fetchall()
    for origin, colour in COLOURS.items():
        days = [row for row in rows if row[0] == origin]
        delays = [row[2] for row in days]
        week = [sum(delays[max(0, i - 6) : i + 1]) / len(delays[max(0, i - 6) : i + 1]) for i in range(len(delays))]
        axes.plot([row[1] for row in days], week, color=colour, label=origin)
    if killed_on is not None:
        at = date.fromisoformat(killed_on)
        axes.axvline(at, color="black", linestyle=":", linewidth=1)
        axes.annotate("leader killed -9", (at, axes.get_ylim()[1]), rotation=90, va="top", ha="right", fontsize=8)
    axes.set_title("Mean departure delay, mean of seven days", loc="left", fontsize=10)
    places = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib has no types here
    axes.xaxis.set_major_locator(places)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(places))  # type: ignore[no-untyped-call]  # matplotlib has no types here
    axes.legend(frameon=False)
    _finish(axes)


def _draw_day(axes: Any, database: duckdb.DuckDBPyConnection) -> None:
    rows = database.execute(BY_HOUR).fetchall()
    for origin, colour in COLOURS.items():
        hours = [row for row in rows if row[0] == origin]
        axes.plot([row[1] for row in hours], [row[2] for row in hours], color=colour, marker="o", markersize=3)
    axes.set_title("Mean departure delay by scheduled hour", loc="left", fontsize=10)
    axes.set_xticks(range(5, 24, 3))
    axes.set_xlabel("hour in New York")
    _finish(axes)


def _finish(axes: Any) -> None:
    axes.set_ylabel("minutes")
    axes.spines[["top", "right"]].set_visible(False)


def write_page(path: Path, database: duckdb.DuckDBPyConnection, proof: Proof, run: Run) -> None:
    """A page of one file: charts, proof and results."""
    pictures = "".join(
        f'<div><img alt="{html.escape(text)}" src="data:image/png;base64,{base64.b64encode(data).decode()}"></div>'
        for text, data in charts(database, run.killed_on)
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Flights through Odradek</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(proof.summary)}</h1>",
        f'<p class="about">{html.escape(run.text)}</p>',
        f'<div class="charts">{pictures}</div>',
        "<h2>Proof</h2>Streams against a batch computation over the files.",
        _proof_table(proof),
    ]
    for question in QUESTIONS:
        rows = database.execute(question.query).fetchall()
        parts += [f"<h2>{question.title}</h2>{question.detail}", _table(question.headings, rows)]
    path.write_text("\n".join([*parts, "</body></html>"]), encoding="utf-8")


def _proof_table(proof: Proof) -> str:
    body = "".join(
        f'<tr><td class="{"holds" if line.holds else "fails"}">{"holds" if line.holds else "FAILS"}'
        + "".join(f"<td>{html.escape(text)}" for text in (line.statement, line.expected, line.found))
        for line in proof.lines
    )
    return f'<div class="table"><table><tr><th><th>statement<th>from the files<th>from the pipeline{body}</table></div>'


def _table(headings: Sequence[str], rows: list[Any]) -> str:
    marks = [' class="number"' if are_numbers(rows, index) else "" for index in range(len(headings))]
    head = "".join(f"<th{mark}>{html.escape(name)}" for mark, name in zip(marks, headings, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{html.escape(text_of(cell))}" for mark, cell in zip(marks, row, strict=True))
        for row in rows
    )
    return f'<div class="table"><table><tr>{head}{body}</table></div>'
