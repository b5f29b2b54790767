"""The proof: what came out, compared with a plain batch computation over the source files. Nothing here is assumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
from confluent_kafka import Consumer, KafkaError, TopicPartition

from examples.flights.data import Day
from examples.flights.nodes import Nodes
from examples.flights.pipeline import LATE_HOURS
from examples.flights.tables import connect
from examples.topics import settle

KNOWN_AT = "time_hour + to_minutes(minute + coalesce(dep_delay, 0))"
EXPECTED = {
    "flights": """
        SELECT f.id, f.carrier, f.flight, f.tailnum, f.origin, f.dest, f.time_hour, f.dep_delay, f.arr_delay,
               w.temp, w.wind_speed, a.name AS airline, p.manufacturer, p.model, p.seats, g.name AS goal
        FROM source_flights f
        LEFT JOIN source_weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
        LEFT JOIN source_airlines a ON a.carrier = f.carrier
        LEFT JOIN source_planes p ON p.tailnum = f.tailnum
        LEFT JOIN source_airports g ON g.faa = f.dest""",
    "delays": """
        SELECT origin, carrier, time_hour AS hour, count(*) AS flights, count(dep_delay) AS departed,
               sum(dep_delay)::BIGINT AS delay_minutes, max(dep_delay) AS worst_minutes
        FROM source_flights GROUP BY ALL""",
}
ACTUAL = {
    "flights": """
        SELECT id, carrier, flight, tailnum, origin, dest, time_hour, dep_delay, arr_delay,
               temp, wind_speed, airline, manufacturer, model, seats, goal FROM flights""",
    "delays": "SELECT origin, carrier, hour, flights, departed, delay_minutes, worst_minutes FROM delays",
}


@dataclass
class Line:
    """One statement of the proof, its two sides, and whether they agree."""

    statement: str
    expected: str
    found: str
    holds: bool


@dataclass
class Proof:
    """All statements; `produced` counts the rows of the source files, `came_out` those of the Delta table."""

    lines: list[Line]
    produced: int
    came_out: int
    lost: int
    twice: int

    @property
    def holds(self) -> bool:
        return all(line.holds for line in self.lines)

    @property
    def summary(self) -> str:
        return f"{self.produced:,} in, {self.came_out:,} out, {self.lost:,} lost, {self.twice:,} twice"


def prove(nodes: Nodes, csv_folder: Path, folder: Path, days: list[Day]) -> tuple[Proof, duckdb.DuckDBPyConnection]:
    """Compare topics and tables with the files; returns the proof and DuckDB with all tables, for queries."""
    bootstrap = nodes.bootstrap
    database = connect({name: folder / "tables" / name for name in ("flights", "delays")})
    load_sources(database, csv_folder, days)
    expected_ids = {row[0] for row in database.execute("SELECT id FROM source_flights").fetchall()}
    in_topic = Counter(record["id"] for _, record in records(bootstrap, "flights") if record["id"] is not None)
    in_table = Counter(dict(database.execute("SELECT id, count(*) FROM flights GROUP BY id").fetchall()))
    lines = [
        _ids("flights in the topic, by id", expected_ids, in_topic),
        _ids("flights in the Delta table, by id", expected_ids, in_table),
        _same(database, "flights", "every column of every enriched flight"),
        _same(database, "delays", "every delay by origin, carrier, hour"),
        _delays_topic(bootstrap, database),
        _late(bootstrap, database),
        _copies(nodes, "flights"),
    ]
    lost = len(expected_ids - in_table.keys())
    twice = sum(count - 1 for count in in_table.values() if count > 1)
    return Proof(lines, len(expected_ids), in_table.total(), lost, twice), database


def load_sources(database: duckdb.DuckDBPyConnection, csv_folder: Path, days: list[Day]) -> None:
    """The source files as DuckDB reads them, cut to the days that were fed."""
    for name in ("flights", "weather", "airlines", "planes", "airports"):
        # One thread, so that the number of a row is its line in the file.
        database.execute(
            f"CREATE TABLE source_{name} AS SELECT row_number() OVER () - 1 AS id, * "
            f"FROM read_csv('{csv_folder / name}.csv', nullstr = 'NA', parallel = false, sample_size = -1)"
        )
    last = max(day.date for day in days)
    database.execute(f"DELETE FROM source_flights WHERE ({KNOWN_AT})::DATE > DATE '{last}'")
    database.execute(f"DELETE FROM source_weather WHERE time_hour::DATE > DATE '{last}'")


def records(bootstrap: str, topic: str) -> Iterator[tuple[bytes | None, dict]]:  # type: ignore[type-arg]  # of whatever JSON has
    """Every committed record of a topic from its start to its end as it is now, by a stock consumer."""
    settle(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "proof",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        open_partitions = set(partitions)
        while open_partitions:
            for message in consumer.consume(5000, timeout=1.0):
                error = message.error()
                if error is None:
                    yield message.key(), json.loads(message.value() or b"{}")
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                elif not error.retriable():
                    raise RuntimeError(f"{topic}: {error.str()}")
    finally:
        consumer.close()


def _ids(statement: str, expected: set[int], found: Counter[int]) -> Line:
    twice = sum(count - 1 for count in found.values())
    lost, foreign = len(expected - found.keys()), len(found.keys() - expected)
    text = f"{found.total():,}, {lost} lost, {twice} twice, {foreign} foreign"
    return Line(statement, f"{len(expected):,}", text, lost == twice == foreign == 0)


def _same(database: duckdb.DuckDBPyConnection, name: str, statement: str) -> Line:
    """Equality as multisets: both differences are empty, and a row that is there twice counts as different."""
    expected, actual = EXPECTED[name], ACTUAL[name]
    missing = _count(database, f"SELECT * FROM ({expected}) EXCEPT ALL SELECT * FROM ({actual})")
    extra = _count(database, f"SELECT * FROM ({actual}) EXCEPT ALL SELECT * FROM ({expected})")
    total = _count(database, expected)
    found = f"{_count(database, actual):,}, {missing} missing, {extra} different"
    return Line(statement, f"{total:,} rows", found, missing == extra == 0)


def _count(database: duckdb.DuckDBPyConnection, query: str) -> int:
    row = database.execute(f"SELECT count(*) FROM ({query})").fetchone()
    assert row is not None
    return int(row[0])


def _delays_topic(bootstrap: str, database: duckdb.DuckDBPyConnection) -> Line:
    """Every hour of an origin and carrier is one record: one that is there twice counts twice in the totals, too."""
    found = list(records(bootstrap, "delays-by-hour"))
    keys = {key for key, _ in found}
    totals = [sum(row["flights"] for _, row in found), sum(row.get("delay_minutes") or 0 for _, row in found)]
    query = f"SELECT count(*), sum(flights), sum(delay_minutes) FROM ({EXPECTED['delays']})"
    expected = database.execute(query).fetchone()
    assert expected is not None
    text = "{:,} hours, {:,} flights, {:,} minutes"
    wanted = text.format(*map(int, expected))
    said = text.format(len(found), *totals)
    return Line("totals in the topic delays-by-hour", wanted, said, said == wanted and len(keys) == len(found))


def _late(bootstrap: str, database: duckdb.DuckDBPyConnection) -> Line:
    query = f"SELECT id FROM source_flights WHERE {KNOWN_AT} > time_hour + INTERVAL {LATE_HOURS} HOURS"
    expected = {row[0] for row in database.execute(query).fetchall()}
    found = Counter(record["id"] for _, record in records(bootstrap, "late-flights"))
    return _ids(f"flights known over {LATE_HOURS} hours late", expected, found)


def _copies(nodes: Nodes, topic: str) -> Line:
    """Every node has every partition, and the files agree byte by byte: that of the killed one as well."""
    in_sync = nodes.await_in_sync(topic)
    copies = nodes.copies(topic)
    same = sum(all(copy.get(name) == checksum for copy in copies) for name, checksum in copies[0].items())
    found = f"{same} of {len(copies[0])} the same" + ("" if in_sync else ", not all in sync")
    expected = f"{len(copies[0])} of {len(copies[0])} the same"
    return Line(f"partitions of {topic} on {len(copies)} nodes, byte by byte", expected, found, found == expected)
