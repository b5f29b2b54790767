"""The demo's proof must be able to fail: a lost, doubled or changed row is told. And its tables take a batch once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from examples.flights import proof
from examples.flights.data import days, unpack
from examples.flights.tables import ExactlyOnceTable, connect


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE wanted AS SELECT range AS id, range % 7 AS delay FROM range(100)")
    connection.execute("CREATE TABLE got AS FROM wanted")
    monkeypatch.setitem(proof.EXPECTED, "delays", "SELECT id, delay FROM wanted")
    monkeypatch.setitem(proof.ACTUAL, "delays", "SELECT id, delay FROM got")
    return connection


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("DELETE FROM got WHERE id = 5", "99, 1 missing, 0 different"),
        ("INSERT INTO got FROM got WHERE id = 5", "101, 0 missing, 1 different"),
        ("UPDATE got SET delay = delay + 1 WHERE id = 5", "100, 1 missing, 1 different"),
        ("UPDATE got SET delay = NULL WHERE id = 5", "100, 1 missing, 1 different"),
    ],
)
def test_a_difference_is_told(database: duckdb.DuckDBPyConnection, damage: str, text: str) -> None:
    assert proof._same(database, "delays", "all").holds
    database.execute(damage)
    line = proof._same(database, "delays", "all")
    assert not line.holds
    assert line.found == text


def test_ids_are_counted() -> None:
    expected = {1, 2, 3}
    assert proof._ids("ids", expected, Counter([1, 2, 3])).holds
    for found in ([1, 2], [1, 2, 3, 3], [1, 2, 3, 4], [1, 2, 4]):
        assert not proof._ids("ids", expected, Counter(found)).holds
    assert proof._ids("ids", expected, Counter([1, 1, 2, 9])).found == "4, 1 lost, 1 twice, 1 foreign"


def test_the_year_is_whole_and_in_order(tmp_path: Path) -> None:
    found = days(unpack(tmp_path))
    assert sum(len(day.flights) for day in found) == 336_776
    assert sum(len(day.weather) for day in found) == 26_115
    times = [event.known_ms for day in found for event in day.flights]
    assert times == sorted(times)


def test_a_batch_is_taken_once(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "at": pa.array([0, 1], pa.timestamp("us", tz="Etc/UTC"))})
    table = ExactlyOnceTable(tmp_path / "t", "query")
    assert not table.has(0)
    assert table.append(rows, 0)
    assert not table.append(rows, 0), "as Spark does after a crash"
    assert not ExactlyOnceTable(tmp_path / "t", "query").append(rows, 0), "and after a restart"
    assert ExactlyOnceTable(tmp_path / "t", "query").append(rows, 1)
    assert ExactlyOnceTable(tmp_path / "t", "another query").append(rows, 0)
    assert connect({"t": tmp_path / "t"}).execute("SELECT count(*) FROM t").fetchone() == (6,)
