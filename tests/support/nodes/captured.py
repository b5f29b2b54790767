"""The topics of one capture of a test's own database, and captures in this process and as a command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from confluent_kafka import Message

from examples.cdc import shop
from odradek.capture import capture
from odradek.capture.database import Database
from odradek.capture.formats import DebeziumFormat, RowFormat
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import await_ends, read_all
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres

SETTINGS = ("wal_level=logical", "max_slot_wal_keep_size=64MB", "max_replication_slots=60")
LARGE = 15_000  # rows: more than the producer's queue takes
LAST = "INSERT INTO public.stock VALUES (99, 'the last one', 0)"


def url_of(server: Postgres, database: str) -> str:
    return f"{server.url.rpartition('/')[0]}/{database}"


@contextmanager
def own_database(server: Postgres, test: str) -> Iterator[Any]:
    """A connection in autocommit to a database of the test's own, with the tables of the shop."""
    name = f"d{abs(hash(test))}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(url_of(server, name), autocommit=True) as connection:
        connection.execute(shop.SCHEMA)
        yield connection


class Captured:
    """The topics of one capture, under names of its own."""

    def __init__(self, node: Node, server: Postgres, database: Any, tables: Sequence[str] = tuple(shop.TABLES)) -> None:
        self.url = url_of(server, database.info.dbname)
        self.node = node
        self.name = f"c_{database.info.dbname}"
        self.tables = tuple(tables)
        self.open = ExitStack()
        self.snapshots: list[int] = []  # rows of each

    def database(self) -> Database:
        """A connection of the capture's, closed at the end of the test."""
        return self.open.enter_context(Database(self.url, self.name))

    def start(
        self, *, debezium: bool = False, schemas: bool = False, bootstrap: str | None = None, **options: Any
    ) -> Any:
        """A capture in this process, closed at the end of the test; the caller steps it."""
        given = capture.Options(
            self.name, self.tables, topic_prefix=self.name, partitions=1, compacted=not debezium, **options
        )

        def make_format(keys: Any) -> Any:
            return DebeziumFormat(keys, self.name, "db", schemas=schemas) if debezium else RowFormat(keys)

        clients = {"bootstrap.servers": bootstrap or self.node.bootstrap}
        started = capture.Capture(self.database(), clients, given, make_format, self.snapshots.append)
        self.open.callback(started.close)
        return started

    def catch_up(self, **options: Any) -> int:
        """A capture in this process that writes all that there is; returns the number of changes."""
        changes = self.start(**options).catch_up(self.database().flushed_lsn())
        assert isinstance(changes, int)
        return changes

    def run(self, *arguments: str, code: int = 0) -> Any:
        """`odradek capture run --until-idle`, and its output."""
        tables = [word for table in self.tables for word in ("--table", table)]
        words = ["capture", "run", "--database", self.url, "--name", self.name, "--topic-prefix", self.name]
        return odradek(self.node.bootstrap, *words, *tables, "--partitions", 1, "--until-idle", *arguments, code=code)

    def records(self, table: str) -> list[Message]:
        topic = f"{self.name}.{table}"
        await_ends(self.node.bootstrap, topic)
        return read_all(self.node.bootstrap, topic, isolation_level="read_committed")

    def values(self, table: str) -> list[Any]:
        return [None if each.value() is None else json.loads(each.value() or b"") for each in self.records(table)]

    def count(self) -> int:
        return sum(len(self.records(table)) for table in self.tables)


def kept(captured: Captured, table: str) -> list[Any]:
    """The rows that a compacted topic keeps, in the order of their keys."""
    newest = {message.key(): message.value() for message in captured.records(table)}
    rows = [json.loads(value) for value in newest.values() if value is not None]
    return sorted(tuple(row.values()) for row in rows)


def rows_of(database: Any, table: str) -> list[Any]:
    with database.cursor() as cursor, cursor.copy(f"COPY {table} TO STDOUT") as rows:
        return sorted(rows.rows())
