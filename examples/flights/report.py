"""What a person sees: progress while it runs, tables at the end, a chart and a page that need no network."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.feed import Feed
from examples.flights.pipeline import Pipeline
from examples.flights.proof import Proof
from examples.flights.tables import rows_in

BY_ORIGIN = """
    SELECT origin, carrier, any_value(airline) AS airline, count(*) AS flights,
           round(avg(dep_delay), 1) AS mean_delay, round(100 * avg((dep_delay > 60)::INT), 1) AS over_an_hour
    FROM flights GROUP BY origin, carrier ORDER BY flights DESC LIMIT 12"""
BY_WIND = """
    SELECT CASE WHEN wind_speed IS NULL THEN 'no observation' WHEN wind_speed < 10 THEN 'under 10 mph'
                WHEN wind_speed < 20 THEN '10 to 20 mph' WHEN wind_speed < 30 THEN '20 to 30 mph'
                ELSE '30 mph and more' END AS wind, count(*) AS flights,
           round(avg(dep_delay), 1) AS mean_delay, round(100 * avg((dep_delay IS NULL)::INT), 1) AS cancelled
    FROM flights GROUP BY wind ORDER BY min(coalesce(wind_speed, 99999))"""
LATEST = """
    SELECT carrier || ' ' || flight AS flight, origin || ' to ' || dest AS way,
           strftime(time_hour, '%d %b %H:00') AS hour, dep_delay AS delay_minutes
    FROM flights WHERE dep_delay IS NOT NULL ORDER BY minute + dep_delay DESC LIMIT 5"""
BY_DAY = """
    SELECT origin, hour::DATE AS day, sum(delay_minutes) / sum(departed) AS mean_delay
    FROM delays GROUP BY ALL HAVING sum(departed) > 0 ORDER BY day"""
BY_HOUR = """
    SELECT origin, extract('hour' FROM hour AT TIME ZONE 'America/New_York') AS local_hour,
           sum(delay_minutes) / sum(departed) AS mean_delay
    FROM delays GROUP BY ALL HAVING sum(departed) > 100 ORDER BY local_hour"""


@dataclass
class Status:
    """What the live display shows; the main thread writes it."""

    nodes: str = "starting"
    events: list[str] = field(default_factory=list)
    killed_on: str | None = None


def live_view(status: Status, feed: Feed, pipeline: Pipeline | None, seconds: float) -> RenderableType:
    """One frame of the live display."""
    head = Text.assemble(
        ("nodes ", "bold"), (status.nodes, "bold red" if "KILLED" in status.nodes else "green"), f"   {seconds:5.0f} s"
    )
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        f"2013 as told to the brokers: {feed.date}",
        ProgressBar(total=feed.total, completed=feed.acknowledged, width=40),
        f"{feed.acknowledged:,} of {feed.total:,} flights acknowledged",
    )
    queries = Table(box=None, padding=(0, 2), header_style="bold")
    for column in ("query", "batches", "events read", "rows/s", "watermark", "rows out", "dropped as late"):
        queries.add_column(column, justify="left" if column in ("query", "watermark") else "right")
    for name, cells in query_rows(pipeline):
        queries.add_row(name, *cells)
    return Group(head, bar, queries, *(Text(event, style="yellow") for event in status.events))


def query_rows(pipeline: Pipeline | None) -> list[tuple[str, list[str]]]:
    """The progress of each query as text."""
    if pipeline is None:
        return []
    found = []
    for name, query in pipeline.queries.items():
        last: Any = query.lastProgress
        if last is None:
            found.append((name, ["0", "", "", "", "", ""]))
            continue
        read = sum(events_read(source.endOffset) for source in last.sources)
        dropped = sum(state.numRowsDroppedByWatermark for state in last.stateOperators)
        watermark = str(last.eventTime.get("watermark", ""))[:10]
        rate = f"{last.processedRowsPerSecond:,.0f}" if last.numInputRows else ""
        rows_out = f"{rows_in(pipeline.tables[name]):,}" if name in pipeline.tables else ""
        found.append((name, [str(last.batchId), f"{read:,}", rate, watermark, rows_out, str(dropped)]))
    return found


def events_read(end_offset: str | None) -> int:
    """The offsets of one source's progress, added up; its topics start at 0."""
    import json

    if not end_offset:
        return 0
    return sum(offset for partitions in json.loads(end_offset).values() for offset in partitions.values())


def show_results(console: Console, database: duckdb.DuckDBPyConnection) -> None:
    """Three questions to the Delta tables, answered by DuckDB."""
    for title, query in (
        ("Delays by origin and carrier (Delta table flights, read by DuckDB)", BY_ORIGIN),
        ("Delays by wind at the origin (what the stream-to-stream join brought)", BY_WIND),
        ("The latest of the late: known this long after the hour that they count for", LATEST),
    ):
        table = Table(title=title, title_justify="left", title_style="bold")
        result = database.execute(query)
        for column in result.description:
            table.add_column(column[0].replace("_", " "))
        for row in result.fetchall():
            table.add_row(
                *("" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
            )
        console.print(table)


def show_proof(console: Console, proof: Proof) -> None:
    """Each statement with both of its sides."""
    table = Table(title="Proof: streams against a batch computation over the files", title_justify="left")
    for column in ("", "statement", "from the files", "from the pipeline"):
        table.add_column(column)
    for line in proof.lines:
        mark = "[green]holds[/]" if line.holds else "[bold red]FAILS[/]"
        table.add_row(mark, line.statement, line.expected, line.found)
    console.print(table)


def draw(database: duckdb.DuckDBPyConnection, path: Path, killed_on: str | None) -> None:
    """The chart: delays through the year, with the day on which a leader was killed, and through the day."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.dates import DateFormatter

    figure, (year, day) = plt.subplots(1, 2, figsize=(13, 4.5), width_ratios=(3, 2), layout="constrained")
    for origin, colour in (("EWR", "#1b6ca8"), ("JFK", "#d1495b"), ("LGA", "#66a182")):
        days = [row for row in database.execute(BY_DAY).fetchall() if row[0] == origin]
        delays = [row[2] for row in days]
        week = [sum(delays[max(0, i - 6) : i + 1]) / len(delays[max(0, i - 6) : i + 1]) for i in range(len(delays))]
        year.plot([row[1] for row in days], week, color=colour, label=origin)
        hours = [row for row in database.execute(BY_HOUR).fetchall() if row[0] == origin]
        day.plot([row[1] for row in hours], [row[2] for row in hours], color=colour, marker="o", markersize=3)
    if killed_on is not None:
        from datetime import date

        year.axvline(date.fromisoformat(killed_on), color="black", linestyle=":", linewidth=1)
        year.annotate(
            "leader killed -9",
            (date.fromisoformat(killed_on), year.get_ylim()[1]),
            rotation=90,
            va="top",
            ha="right",
            fontsize=8,
        )
    year.set_title("Mean departure delay, mean of seven days (minutes)", loc="left", fontsize=10)
    year.xaxis.set_major_formatter(DateFormatter("%b"))  # type: ignore[no-untyped-call]
    day.set_xticks(range(5, 24, 3))
    day.set_title("By local hour of scheduled departure (minutes)", loc="left", fontsize=10)
    year.legend(frameon=False)
    for axes in (year, day):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def write_page(path: Path, chart: Path, proof: Proof, database: duckdb.DuckDBPyConnection, seconds: float) -> None:
    """A page of one file: chart, results and proof."""
    picture = base64.b64encode(chart.read_bytes()).decode()
    lines = [["holds" if line.holds else "FAILS", line.statement, line.expected, line.found] for line in proof.lines]
    parts = [
        "<!doctype html><meta charset=utf-8><title>Flights through Odradek</title>",
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;"
        "text-align:left}img{max-width:100%}</style>",
        f"<h1>{html.escape(proof.summary)}</h1><p>A year of flights in {seconds:.0f} seconds.</p>",
        f'<img alt="Delays through the year and the day" src="data:image/png;base64,{picture}">',
        "<h2>Proof</h2>",
        _html_table(["", "statement", "from the files", "from the pipeline"], lines),
    ]
    for title, query in (("By origin and carrier", BY_ORIGIN), ("By wind", BY_WIND), ("Latest", LATEST)):
        result = database.execute(query)
        names = [column[0].replace("_", " ") for column in result.description]
        parts += [f"<h2>{title}</h2>", _html_table(names, result.fetchall())]
    path.write_text("\n".join(parts), encoding="utf-8")


def _html_table(names: list[str], rows: list[Any]) -> str:
    head = "".join(f"<th>{html.escape(name)}" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"
