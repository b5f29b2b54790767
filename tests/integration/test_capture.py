"""`odradek capture` over a real PostgreSQL: each change once, snapshots, slots, Debezium's envelope."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message

from tests.support.clients.cli import odradek, run_here
from tests.support.clients.confluent import await_ends, read_all
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres
from tests.support.waiting import eventually

psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')
capture: Any = pytest.importorskip("odradek.capture.capture")
shop: Any = pytest.importorskip("examples.cdc.shop")
from odradek.capture.database import CaptureError, Database  # noqa: E402
from odradek.capture.formats import DebeziumFormat, RowFormat  # noqa: E402

LARGE = 15_000  # more than the producer's queue takes
LAST = "INSERT INTO public.stock VALUES (99, 'the last one', 0)"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres("wal_level=logical", "max_slot_wal_keep_size=64MB", "max_replication_slots=60") as running:
        yield running


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A connection in autocommit to a database of the test's own."""
    name = f"d{abs(hash(request.node.name))}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(url_of(server, name), autocommit=True) as connection:
        connection.execute(shop.SCHEMA)
        yield connection


def url_of(server: Postgres, database: str) -> str:
    return f"{server.url.rpartition('/')[0]}/{database}"


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

    def start(self, *, debezium: bool = False, schemas: bool = False, **options: Any) -> Any:
        """A capture in this process; the caller steps it."""
        given = capture.Options(
            self.name, self.tables, topic_prefix=self.name, partitions=1, compacted=not debezium, **options
        )

        def make_format(keys: Any) -> Any:
            return DebeziumFormat(keys, self.name, "db", schemas=schemas) if debezium else RowFormat(keys)

        clients = {"bootstrap.servers": self.node.bootstrap}
        return capture.Capture(self.database(), clients, given, make_format, self.snapshots.append)

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


@pytest.fixture
def captured(node: Node, server: Postgres, database: Any) -> Iterator[Captured]:
    found = Captured(node, server, database)
    with found.open:
        yield found


def test_the_command_writes_rows_and_then_changes(captured: Captured, database: Any) -> None:
    database.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
    first = captured.run()
    assert "0 changes written" in first.out and "1 rows of the snapshot written" in first.err
    database.execute("UPDATE public.stock SET pieces = 3")
    database.execute("DELETE FROM public.stock")
    second = captured.run()
    assert "2 changes written" in second.out and "snapshot" not in second.err
    rows = [{"shop": "1", "article": "lamp", "pieces": pieces} for pieces in ("2.00", "3.00")]
    assert captured.values("public.stock") == [*rows, None]
    assert {each.key() for each in captured.records("public.stock")} == {b'{"shop": "1", "article": "lamp"}'}
    status = run_here("capture", "status", "--database", captured.url, "--name", captured.name, "--json").json
    assert status["active"] is False and status["wal_status"] == "reserved" and status["behind_bytes"] < 1 << 20
    dropped = run_here("capture", "drop", "--database", captured.url, "--name", captured.name)
    assert f"slot {captured.name} dropped" in dropped.out
    for command in ("status", "drop"):
        run_here("capture", command, "--database", captured.url, "--name", captured.name, code=4)


def test_changes_that_the_database_repeats_are_written_once(captured: Captured, database: Any) -> None:
    """As after a kill between the end of Kafka's transaction and the confirmation of the slot."""
    first = captured.start()
    copied = "SELECT pg_copy_logical_replication_slot(%s, %s)"
    database.execute(copied, [captured.name, f"{captured.name}_before"])
    shop.work(database, 1, 40)
    while first.step():
        pass
    sent = captured.count()
    assert sent > 40
    database.execute("SELECT pg_drop_replication_slot(%s)", [captured.name])
    database.execute(copied, [f"{captured.name}_before", captured.name])
    again = captured.start()
    assert again.step() == 0
    database.execute(LAST)
    assert again.step() == 1
    assert captured.count() == sent + 1
    database.execute("DELETE FROM public.stock WHERE shop = 99")
    with pytest.raises(KafkaException):  # the first one is fenced
        first.step()


def test_a_snapshot_and_the_log_have_each_transaction_once(captured: Captured, server: Postgres, database: Any) -> None:
    """Transactions that are open while the slot is created, and while the snapshot is taken."""
    insert = "INSERT INTO public.stock VALUES (%s, 'lamp', 1)"
    own = captured.database()
    own.publish(own.tables(shop.TABLES))  # locks the tables, and has to be there before the slot
    database.execute(insert, [1])
    with psycopg.connect(captured.url) as open_before:
        open_before.execute(insert, [2])
        slot = threading.Thread(target=captured.database().create_slot)
        slot.start()  # it waits for the open transaction, as PostgreSQL has it
        open_before.commit()
        slot.join()
        database.execute(insert, [3])  # in the log of the slot, and in the snapshot
        open_before.execute(insert, [4])
        first = captured.start()
        open_before.commit()  # in the log alone
    while first.step():
        pass
    assert [row["shop"] for row in captured.values("public.stock")] == ["1", "2", "3", "4"]


def kept(captured: Captured, table: str) -> list[Any]:
    """The rows that a compacted topic keeps, in the order of their keys."""
    newest = {message.key(): message.value() for message in captured.records(table)}
    rows = [json.loads(value) for value in newest.values() if value is not None]
    return sorted(tuple(row.values()) for row in rows)


def rows_of(database: Any, table: str) -> list[Any]:
    with database.cursor() as cursor, cursor.copy(f"COPY {table} TO STDOUT") as rows:
        return sorted(rows.rows())


# Ends itself by SIGKILL when five rows of the snapshot are committed.
KILLED = """
import os, signal, sys
from odradek.capture import capture
from odradek.capture.database import Database
from odradek.capture.formats import RowFormat
bootstrap, url, name = sys.argv[1:]
capture.SNAPSHOT_TRANSACTION_S = 0.0
options = capture.Options(name, ("public.stock",), topic_prefix=name, partitions=1)
end = lambda rows: rows == 5 and os.kill(os.getpid(), signal.SIGKILL)
capture.Capture(Database(url, name), {"bootstrap.servers": bootstrap}, options, RowFormat, end)
"""


def test_rows_of_a_killed_snapshot_that_are_deleted_since_go(
    captured: Captured, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are deleted right before the second snapshot, and by a transaction that is open meanwhile."""
    captured.tables = ("public.stock",)
    database.execute("INSERT INTO public.stock SELECT g, 'lamp', 0 FROM generate_series(1, 10) g")
    command = [sys.executable, "-c", KILLED, captured.node.bootstrap, captured.url, captured.name]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    database.execute("DELETE FROM public.stock WHERE shop = 1")
    database.execute("UPDATE public.stock SET shop = shop + 100 WHERE shop IN (2, 8)")
    database.execute("UPDATE public.stock SET pieces = 7 WHERE shop IN (3, 9)")
    database.execute("INSERT INTO public.stock VALUES (11, 'chair', 1)")
    taken = Database.snapshot

    def snapshot(self: Database, tables: Any) -> Any:
        database.execute("SET synchronous_commit = off")  # visible before it is in the log on the disk
        database.execute("DELETE FROM public.stock WHERE shop = 4")
        return taken(self, tables)

    monkeypatch.setattr(Database, "snapshot", snapshot)
    with psycopg.connect(captured.url) as open_meanwhile:
        open_meanwhile.execute("DELETE FROM public.stock WHERE shop = 5")
        again = captured.start()
        assert ("5", "lamp", "0.00") in kept(captured, "public.stock")
        open_meanwhile.commit()
    again.catch_up(captured.database().flushed_lsn())
    assert kept(captured, "public.stock") == rows_of(database, "public.stock")


def test_a_snapshot_that_is_asked_for_again_leaves_no_deleted_row(captured: Captured, database: Any) -> None:
    database.execute("INSERT INTO public.stock SELECT g, 'lamp', 0 FROM generate_series(1, 4) g")
    captured.catch_up()
    database.execute("DELETE FROM public.stock WHERE shop = 1")
    database.execute("UPDATE public.stock SET shop = 20 WHERE shop = 2")
    captured.catch_up(snapshot_again=True)
    assert kept(captured, "public.stock") == rows_of(database, "public.stock")


def test_a_table_that_is_added_has_a_snapshot_and_later_changes(
    captured: Captured, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.tables = ("public.customers",)
    database.execute("INSERT INTO public.customers VALUES (1, 'first')")
    captured.catch_up()
    database.execute(LAST)
    database.execute("INSERT INTO public.customers VALUES (2, 'second')")
    with psycopg.connect(captured.url) as writer:  # its row is written before the table is published
        captured.tables = tuple(shop.TABLES)
        database.execute("ALTER TABLE public.stock REPLICA IDENTITY FULL")
        writer.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
        monkeypatch.setattr("odradek.capture.database.LOCK_TIMEOUT_MS", 100)
        with pytest.raises(CaptureError, match=r"an open transaction locks public\.stock"):
            captured.catch_up()
    captured.catch_up()
    assert captured.snapshots == [1, 2]
    database.execute("DELETE FROM public.stock WHERE shop = 99")
    captured.catch_up()
    assert kept(captured, "public.stock") == rows_of(database, "public.stock") == [("1", "lamp", "2.00")]
    assert [row["id"] for row in captured.values("public.customers")] == ["1", "2"], "no second snapshot of it"


def test_a_table_that_is_left_out_for_a_while_has_a_new_snapshot(captured: Captured, database: Any) -> None:
    captured.catch_up()
    database.execute(LAST)
    database.execute("INSERT INTO public.customers VALUES (1, 'first')")
    captured.tables = ("public.customers",)
    assert captured.catch_up() == 1
    captured.tables = tuple(shop.TABLES)
    captured.catch_up()
    assert captured.snapshots == [0, 1]
    assert [row["shop"] for row in captured.values("public.stock")] == ["99"]


def test_ctrl_c_in_a_snapshot_ends_the_capture(captured: Captured, database: Any, monkeypatch: Any) -> None:
    """And not only after all rows are read."""
    database.execute(f"INSERT INTO public.stock SELECT 1, g, 1 FROM generate_series(1, {LARGE}) g")
    monkeypatch.setattr(RowFormat, "read", lambda *row: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        captured.start()


def test_debeziums_events(captured: Captured, database: Any) -> None:
    database.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
    first = captured.start(debezium=True)
    database.execute("UPDATE public.stock SET pieces = 3")
    database.execute("ALTER TABLE public.stock ADD COLUMN since date")
    database.execute("UPDATE public.stock SET since = '2026-01-02'")
    database.execute("UPDATE public.stock SET article = 'chair'")
    database.execute("DELETE FROM public.stock")
    database.execute("TRUNCATE public.stock")
    while first.step():
        pass
    lamp, chair = {"shop": 1, "article": "lamp"}, {"shop": 1, "article": "chair"}
    dated = {"pieces": "3.00", "since": 20455}
    events = [
        None if value is None else (value["op"], value["before"], value["after"])
        for value in captured.values("public.stock")
    ]
    assert events == [
        ("r", None, {**lamp, "pieces": "2.00"}),
        ("u", {**lamp, "pieces": "2.00"}, {**lamp, "pieces": "3.00"}),
        ("u", {**lamp, "pieces": "3.00", "since": None}, {**lamp, **dated}),
        ("d", {**lamp, **dated}, None),
        None,
        ("c", None, {**chair, **dated}),
        ("d", {**chair, **dated}, None),
        None,
        ("t", None, None),
    ]
    lsns = [value["source"]["lsn"] for value in captured.values("public.stock") if value is not None]
    assert lsns == sorted(lsns)


def test_a_truncate_ends_the_capture_and_leaves_no_transaction_open(captured: Captured, database: Any) -> None:
    """`read_committed` consumers would wait a quarter of an hour for its end."""
    captured.run()
    with database.transaction():
        database.execute(LAST)
        database.execute("TRUNCATE public.stock")
    refused = captured.run(code=1)
    assert refused.err.splitlines()[-1].startswith("odradek: public.stock was truncated")
    assert captured.values("public.stock") == []
    captured.run("--on-truncate", "skip")
    assert [value["shop"] for value in captured.values("public.stock")] == ["99"]


def test_the_slot_of_an_idle_table_does_not_keep_the_log(captured: Captured, database: Any) -> None:
    """Changes of other tables move it on."""
    first = captured.start()
    database.execute("CREATE TABLE public.other AS SELECT g, repeat('x', 1000) FROM generate_series(1, 2000) g")
    assert first.step() == 0
    slot = captured.database().slot()
    assert slot is not None and slot.behind_bytes is not None and slot.behind_bytes < 100_000


def test_a_lost_slot_is_an_error_that_says_what_to_do(captured: Captured, database: Any) -> None:
    captured.run()
    for _ in range(12):  # 16 MB each, of which the slot may keep 64
        database.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000))")
        database.execute("SELECT pg_switch_wal()")
    database.execute("CHECKPOINT")
    refused = captured.run(code=1)
    assert "odradek capture drop" in refused.err and "--snapshot-again" in refused.err
    run_here("capture", "drop", "--database", captured.url, "--name", captured.name)
    refused = captured.run(code=1)
    assert "--snapshot-again" in refused.err
    database.execute(LAST)
    captured.run("--snapshot-again")
    assert [value["shop"] for value in captured.values("public.stock")] == ["99"]


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (["public.nothing"], "there is no table public.nothing"),
        (["public.keyless"], "public.keyless has no primary key"),
        (["public.seen"], "public.seen is no ordinary table"),
    ],
)
def test_tables_that_cannot_be_captured_are_refused(
    node: Node, server: Postgres, database: Any, tables: list[str], text: str
) -> None:
    database.execute("CREATE TABLE public.keyless (id int)")
    database.execute("CREATE VIEW public.seen AS SELECT 1")
    refused = Captured(node, server, database, tables).run(code=1)
    assert text in refused.err


def test_a_table_that_is_locked_is_an_error_and_not_a_wait(
    captured: Captured, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is waited for would hold up the application."""
    with psycopg.connect(captured.url) as writer:
        writer.execute(LAST)
        monkeypatch.setattr("odradek.capture.database.LOCK_TIMEOUT_MS", 100)
        with pytest.raises(CaptureError, match=r"an open transaction locks public\.stock"):
            captured.start()


def test_a_wrong_command_line_is_one_line(captured: Captured) -> None:
    where = ["--database", captured.url]
    for words, text in [
        (["--table", "orders"], "schema.table"),
        (["--table", "public.orders", "--name", "My-Slot"], "--name"),
        (["--table", "public.orders", "--schemas"], "--format debezium"),
        (["--table", "public.orders", "--topic-prefix", "a b"], "cannot be a topic"),
    ]:
        assert text in run_here("capture", "run", *where, *words, code=2).err
    nowhere = ["--database", "postgresql://postgres@127.0.0.1:1/x", "--table", "public.orders"]
    assert "PostgreSQL: " in run_here("capture", "run", *nowhere, "-b", captured.node.bootstrap, code=3).err


@pytest.mark.slow  # a server of its own, that is killed
def test_a_capture_goes_on_when_the_database_comes_back(node: Node) -> None:
    with Postgres("wal_level=logical") as server, psycopg.connect(server.url, autocommit=True) as first:
        first.execute(shop.SCHEMA)
        place = Captured(node, server, first, ["public.stock"])
        tables = ["--table", "public.stock", "--partitions", "1", "--topic-prefix", place.name, "--name", "again"]
        command = [sys.executable, "-m", "odradek", "capture", "run", "--database", server.url, *tables]
        with subprocess.Popen([*command, "-b", node.bootstrap]) as process:
            first.execute("INSERT INTO public.stock VALUES (1, 'lamp', 2)")
            eventually(lambda: exists(node, f"{place.name}.public.stock") and len(place.records("public.stock")) == 1)
            server.kill()
            server.start()
            with psycopg.connect(server.url, autocommit=True) as second:
                second.execute(LAST)
            eventually(lambda: len(place.records("public.stock")) == 2)
            process.terminate()
            assert process.wait(60) == 0
    assert [value["shop"] for value in place.values("public.stock")] == ["1", "99"]


def exists(node: Node, topic: str) -> bool:
    return topic in odradek(node.bootstrap, "topics", "list").out.split()


@pytest.mark.slow  # fifteen thousand rows
def test_a_large_transaction_is_one_and_long_values_stay(captured: Captured, database: Any) -> None:
    """More changes than a producer's queue takes, in one transaction; and rows as many that are there at first."""
    database.execute("CREATE TABLE public.flags (id int PRIMARY KEY, yes boolean, at timestamptz, long text)")
    database.execute("ALTER TABLE public.flags ALTER long SET STORAGE EXTERNAL")
    database.execute("INSERT INTO public.flags VALUES (1, true, 'infinity', repeat('x', 50000)), (2, NULL, NULL, NULL)")
    database.execute(f"INSERT INTO public.stock SELECT 1, g, 1 FROM generate_series(1, {LARGE}) g")
    assert capture.QUEUE < LARGE
    captured.tables = (*shop.TABLES, "public.flags")
    first = captured.start()
    assert len(captured.records("public.stock")) == LARGE
    with database.transaction():
        database.execute("UPDATE public.stock SET pieces = 2")
        database.execute("UPDATE public.flags SET yes = NOT yes")
    assert first.step() == LARGE + 2
    assert captured.start().step() == 0
    found = captured.records("public.stock")
    assert [len(found), sum(b'"2.00"' in (m.value() or b"") for m in found)] == [2 * LARGE, LARGE]
    before, after = (row for row in captured.values("public.flags") if row["id"] == "1")
    assert before == {"id": "1", "yes": "t", "at": "infinity", "long": "x" * 50000}
    assert after == before | {"yes": "f"}
