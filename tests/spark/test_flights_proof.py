"""The demo's proof must be able to fail: a lost, doubled or changed row is reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from examples.flights import proof
from examples.flights.data import days, unpack
from examples.flights.tables import connect, rows_in


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
def test_a_difference_is_reported(database: duckdb.DuckDBPyConnection, damage: str, text: str) -> None:
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


@pytest.mark.slow  # the file of the year does not change
def test_the_year_is_whole_and_in_order(tmp_path: Path) -> None:
    found = days(unpack(tmp_path))
    assert sum(len(day.flights) for day in found) == 336_776
    assert sum(len(day.weather) for day in found) == 26_115
    times = [event.known_ms for day in found for event in day.flights]
    assert times == sorted(times)


def test_tables_are_read_as_they_are(tmp_path: Path) -> None:
    assert rows_in(tmp_path / "t") == 0
    for _ in range(2):
        write_deltalake(str(tmp_path / "t"), pa.table({"id": [1, 2, 3]}), mode="append")
    assert rows_in(tmp_path / "t") == 6
    assert connect({"t": tmp_path / "t"}).execute("SELECT count(*) FROM t").fetchone() == (6,)


def test_an_hour_that_is_reported_twice_is_found(
    database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(proof.EXPECTED, "delays", "SELECT id, 1 AS flights, delay AS delay_minutes FROM wanted")
    rows = [(b"%d" % n, {"flights": 1, "delay_minutes": n % 7}) for n in range(100)]
    for found, holds in (
        (rows, True),
        (rows[1:], False),
        ([*rows, rows[7]], False),
        ([*rows[:-1], rows[0]], False),
    ):
        monkeypatch.setattr(proof, "records", lambda *_, found=found: iter(found))
        assert proof._delays_topic("", database).holds is holds
