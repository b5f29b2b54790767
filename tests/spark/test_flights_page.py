"""The page that a run of the demo leaves: when and with what, units, numbers that align, and a phone's width."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from examples.flights import page, proof, report
from examples.flights.tables import connect

RUN = page.Run(31, 84.4, "2013-01-14", datetime(2026, 11, 25, 18, 30, tzinfo=UTC))
LINE = proof.Line("flights, by <id>", "1,234", "1,233, 1 lost", False)
PROOF = proof.Proof([LINE, proof.Line("delays", "9", "9", True)], 1234, 1233, 1, 0)


FLIGHTS = """
    CREATE TABLE flights AS SELECT range AS id, (ARRAY['EWR', 'JFK', 'LGA'])[range % 3 + 1] AS origin,
        (ARRAY['UA', 'B6'])[range % 2 + 1] AS carrier, (ARRAY['United & Co.', 'Blue'])[range % 2 + 1] AS airline,
        range::INT AS flight, 'LAX' AS dest,
        TIMESTAMPTZ '2013-01-01 10:00Z' + to_hours((range // 10)::INT) AS time_hour,
        0 AS minute, CASE WHEN range % 50 > 0 THEN (range % 97) - 15 END::INT AS dep_delay,
        CASE WHEN range % 11 > 0 THEN range % 40 END::DOUBLE AS wind_speed
    FROM range(12000)"""
DELAYS = """
    CREATE TABLE delays AS SELECT origin, carrier, time_hour AS hour, count(dep_delay) AS departed,
        sum(dep_delay)::BIGINT AS delay_minutes FROM flights GROUP BY ALL"""


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Tables as the demo makes them, small."""
    connection = connect({})
    connection.execute(FLIGHTS)
    connection.execute(DELAYS)
    yield connection
    connection.close()


class Tables(HTMLParser):
    """The tables of a page: for each the class and text of every cell, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[list[list[tuple[str, str]]]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.found.append([])
        elif tag == "tr":
            self.found[-1].append([])
        elif tag in ("td", "th"):
            self.found[-1][-1].append((dict(attrs).get("class") or "", ""))
        self._open = tag in ("td", "th")

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            kind, text = self.found[-1][-1][-1]
            self.found[-1][-1][-1] = (kind, text + data)


def test_the_page_says_when_and_with_what_and_fits_a_phone(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    page.write_page(path, database, PROOF, RUN)
    text = path.read_text()
    assert "2026-11-25 18:30 UTC. 31 days of flights in 84 seconds" in text
    for name in ("odradek", "pyspark", "duckdb"):
        assert f"{name} {version(name)}" in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert len(re.findall('<div class="table"><table>', text)) == text.count("<table>") == 4, "a wide one is scrolled"
    assert text.count('src="data:image/png;base64,') == 2
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "the page needs no network"
    assert "<id>" not in text
    proved, *answers = Tables(text).found
    assert proved[1] == [("fails", "FAILS"), ("", "flights, by <id>"), ("", "1,234"), ("", "1,233, 1 lost")]
    assert proved[2][0] == ("holds", "holds")
    for question, rows in zip(report.QUESTIONS, answers, strict=True):
        assert [cell for _, cell in rows[0]] == list(question.headings)
        for index, (kind, heading) in enumerate(rows[0]):
            cells = [row[index] for row in rows[1:]]
            assert {kind} == {of for of, _ in cells}
            numeric = all(re.fullmatch(r"-?[\d,]+(\.\d)?", cell) for _, cell in cells)
            assert numeric == (kind == "number"), heading
            assert not numeric or len({"." in cell for _, cell in cells}) == 1, f"as many decimals in each: {heading}"
            assert not numeric or re.search(r"\((min|%)\)|^flights$", heading), f"a unit: {heading}"


def test_a_terminal_shows_the_same_columns(database: duckdb.DuckDBPyConnection) -> None:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        report.show_results(console, database)
    shown = captured.get()
    for question in report.QUESTIONS:
        assert question.title in shown
        assert all(heading in shown for heading in question.headings)


@pytest.mark.parametrize("days", [2, 30])
def test_the_chart_is_drawn_in_one_and_in_two(tmp_path: Path, days: int) -> None:
    database = connect({})
    database.execute(FLIGHTS.replace("range(12000)", f"range({days * 240})"))
    database.execute(DELAYS)
    page.draw(database, tmp_path / "chart.png", RUN.killed_on)
    halves = [data for _, data in page.charts(database, RUN.killed_on)]
    for data in (*halves, (tmp_path / "chart.png").read_bytes()):
        assert data.startswith(b"\x89PNG")
        assert len(data) > 10_000, "there is something on it"
