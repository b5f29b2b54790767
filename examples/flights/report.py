"""The output in a terminal: progress while it runs, tables at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
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
           strftime(time_hour, '%Y-%m-%d %H:00') AS hour, dep_delay AS delay_minutes
    FROM flights WHERE dep_delay IS NOT NULL ORDER BY minute + dep_delay DESC LIMIT 5"""


@dataclass(frozen=True)
class Question:
    """A question to the Delta tables; `headings` name the columns of its answer, with their units."""

    title: str
    detail: str
    query: str
    headings: tuple[str, ...]


QUESTIONS = (
    Question(
        "Delays by origin and carrier",
        "Delta table flights, read by DuckDB.",
        BY_ORIGIN,
        ("origin", "carrier", "airline", "flights", "mean delay (min)", "over an hour (%)"),
    ),
    Question(
        "Delays by wind at the origin",
        "What the stream-to-stream join brought.",
        BY_WIND,
        ("wind", "flights", "mean delay (min)", "cancelled (%)"),
    ),
    Question(
        "The latest of the late",
        "Known this long after the hour that they count for.",
        LATEST,
        ("flight", "from, to", "scheduled hour (UTC)", "delay (min)"),
    ),
)


def text_of(cell: Any) -> str:
    """A cell of an answer; numbers of a column have the same number of decimals, so that they align."""
    if cell is None:
        return ""
    return f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def are_numbers(rows: list[Any], column: int) -> bool:
    """Whether a column holds numbers, which stand at its right."""
    return all(isinstance(row[column], int | float | None) for row in rows)


@dataclass
class Status:
    """The values of the live display; the main thread writes them."""

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
        f"2013 as sent to the brokers: {feed.date}",
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
    for question in QUESTIONS:
        console.print(f"[bold]{question.title}.[/] {question.detail}")
        table = Table()
        rows = database.execute(question.query).fetchall()
        for index, heading in enumerate(question.headings):
            table.add_column(heading, justify="right" if are_numbers(rows, index) else "left")
        for row in rows:
            table.add_row(*map(text_of, row))
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
