"""`odradek capture` writes snapshots and changes of tables, also of tables that are added, altered and removed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import psycopg
import pytest

from examples.cdc import shop
from odradek.capture.database import CaptureError, Database
from odradek.capture.formats import RowFormat
from tests.support.nodes.captured import LARGE, LAST, Captured, kept, rows_of, url_of
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres


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


def test_deleted_rows_of_a_killed_snapshot_are_removed(
    captured: Captured, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows are deleted right before the second snapshot, and some by a transaction that is open meanwhile."""
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


def test_a_repeated_snapshot_leaves_no_deleted_row(captured: Captured, database: Any) -> None:
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
    """The capture ends at once, and not only after all rows are read."""
    database.execute(f"INSERT INTO public.stock SELECT 1, g, 1 FROM generate_series(1, {LARGE}) g")

    def interrupted(*row: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RowFormat, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        captured.start()


def test_names_are_taken_as_they_are_and_timeouts_are_off(captured: Captured, database: Any) -> None:
    """A topic has `_` for what it cannot have; the connection is idle for as long as a snapshot takes."""
    name = database.info.dbname
    database.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '1s'")
    database.execute(f"ALTER DATABASE {name} SET statement_timeout = '1s'")
    database.execute('CREATE TABLE public."Order ""Lines""" ("Id %s" int PRIMARY KEY, "käse" text)')
    database.execute('INSERT INTO public."Order ""Lines""" VALUES (1, \'ü\')')
    captured.tables = ('public.Order "Lines"',)
    running = captured.start()
    database.execute('INSERT INTO public."Order ""Lines""" VALUES (2, NULL)')
    running.step()
    rows = [{"Id %s": "1", "käse": "ü"}, {"Id %s": "2", "käse": None}]
    assert captured.values("public.Order__Lines_") == rows
    for setting in ("idle_session_timeout", "statement_timeout"):
        assert captured.database()._one(f"SHOW {setting}") == ("0",)


def test_a_value_that_the_log_lacks_is_an_error_that_names_it(captured: Captured, database: Any) -> None:
    """The log lacks it without REPLICA IDENTITY FULL; other updates and deletions need only the key."""
    captured.tables = ("public.customers",)
    database.execute("ALTER TABLE public.customers ALTER note SET STORAGE EXTERNAL")
    database.execute(
        "INSERT INTO public.customers (id, name, note) VALUES (1, '', repeat('x', 9000)), (2, '', ''), (3, '', '')"
    )
    captured.catch_up()
    database.execute("ALTER TABLE public.customers REPLICA IDENTITY DEFAULT")
    database.execute("UPDATE public.customers SET name = 'second' WHERE id = 2")
    database.execute("UPDATE public.customers SET id = 30 WHERE id = 3")
    database.execute("DELETE FROM public.customers WHERE id = 2")
    captured.catch_up()
    assert [row[0] for row in kept(captured, "public.customers")] == ["1", "30"]
    database.execute("ALTER TABLE public.customers REPLICA IDENTITY DEFAULT")
    database.execute("UPDATE public.customers SET name = 'first' WHERE id = 1")
    with pytest.raises(CaptureError, match=r"public\.customers has not the value of note"):
        captured.catch_up()


def test_another_primary_key_needs_other_topics(captured: Captured, database: Any) -> None:
    """Else rows would stay under keys that nothing deletes."""
    captured.tables = ("public.stock",)
    database.execute(LAST)
    captured.catch_up()
    running = captured.start()
    database.execute("ALTER TABLE public.stock DROP CONSTRAINT stock_pkey, DROP shop, ADD PRIMARY KEY (article)")
    database.execute("INSERT INTO public.stock VALUES ('chair', 1)")
    with pytest.raises(CaptureError, match=r"a change of public\.stock has no column 'shop'"):
        running.step()
    with pytest.raises(CaptureError, match=r"the key \(shop, article\), and the primary key is now \(article\)"):
        captured.start()


def test_a_renamed_table_keeps_its_topic_and_generated_columns_are_out(captured: Captured, database: Any) -> None:
    """The rows of a table that inherits belong to that table alone, in the snapshot as in the log."""
    captured.tables = ("public.stock",)
    database.execute("ALTER TABLE public.stock ADD twice numeric GENERATED ALWAYS AS (pieces * 2) STORED")
    database.execute("CREATE TABLE public.child (PRIMARY KEY (shop, article)) INHERITS (public.stock)")
    database.execute("INSERT INTO public.stock VALUES (1, 'lamp', 1)")
    database.execute("INSERT INTO public.child VALUES (2, 'lamp', 1)")
    running = captured.start()
    database.execute("ALTER TABLE public.stock RENAME TO articles")
    database.execute("INSERT INTO public.articles VALUES (3, 'lamp', 1)")
    database.execute("INSERT INTO public.child VALUES (4, 'lamp', 1)")
    running.step()
    row = {"article": "lamp", "pieces": "1.00"}
    assert captured.values("public.stock") == [{"shop": "1", **row}, {"shop": "3", **row}]


def test_a_domain_has_the_type_that_it_is_made_of(captured: Captured, database: Any) -> None:
    """The type is the same in the snapshot and in the log."""
    captured.tables = ("public.measured",)
    database.execute("CREATE DOMAIN public.inner_number AS int CHECK (value > 0)")
    database.execute("CREATE DOMAIN public.number AS public.inner_number")
    database.execute("CREATE TABLE public.measured (id public.number PRIMARY KEY)")
    database.execute("INSERT INTO public.measured VALUES (1)")
    running = captured.start(debezium=True)
    database.execute("INSERT INTO public.measured VALUES (2)")
    running.step()
    assert [event["after"] for event in captured.values("public.measured")] == [{"id": 1}, {"id": 2}]


@pytest.mark.slow
def test_rows_that_a_policy_hides_are_an_error(captured: Captured, database: Any, server: Postgres) -> None:
    captured.tables = ("public.stock",)
    database.execute("DO $$ BEGIN CREATE ROLE reader LOGIN REPLICATION; EXCEPTION WHEN duplicate_object THEN END $$")
    database.execute(f"GRANT CREATE ON DATABASE {database.info.dbname} TO reader")
    database.execute("GRANT USAGE, CREATE ON SCHEMA public TO reader")
    database.execute("ALTER TABLE public.stock OWNER TO reader")
    database.execute("ALTER TABLE public.stock ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    database.execute(LAST)
    captured.url = captured.url.replace("postgres@", "reader@")
    assert "row-level security policy" in captured.run(code=1).err
    database.execute("ALTER TABLE public.stock NO FORCE ROW LEVEL SECURITY")
    captured.catch_up()
    assert [row["shop"] for row in captured.values("public.stock")] == ["99"]


@pytest.mark.slow  # servers of its own
def test_a_standby_and_a_wal_level_that_is_too_low_are_refused(node: Node) -> None:
    with Postgres("wal_level=replica", "hot_standby=on") as server:
        with psycopg.connect(server.url, autocommit=True) as first:
            first.execute(shop.SCHEMA)
            place = Captured(node, server, first, ["public.stock"])
            assert "wal_level=replica; set wal_level=logical" in place.run(code=1).err
        server.kill()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        assert "the database is a standby" in place.run(code=1).err


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (["public.nothing"], "there is no table public.nothing"),
        (["public.keyless"], "public.keyless has no primary key"),
        (["public.seen"], "public.seen is not an ordinary table"),
        (["public.made"], "public.made has a generated column in its primary key"),
    ],
)
def test_tables_that_cannot_be_captured_are_refused(
    node: Node, server: Postgres, database: Any, tables: list[str], text: str
) -> None:
    database.execute("CREATE TABLE public.keyless (id int)")
    database.execute("CREATE VIEW public.seen AS SELECT 1")
    database.execute("CREATE TABLE public.made (id int, twice int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY)")
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


@pytest.mark.slow
def test_a_database_in_another_encoding(node: Node, server: Postgres, captured: Captured) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with psycopg.connect(url_of(server, "latin"), autocommit=True) as latin:
        latin.execute(shop.SCHEMA)
        latin.execute("INSERT INTO public.customers VALUES (1, 'été')")
        captured.url, captured.name, captured.tables = url_of(server, "latin"), "latin", ("public.customers",)
        running = captured.start()
        latin.execute("INSERT INTO public.customers VALUES (2, 'hiver à')")
        running.step()
    assert [row["name"] for row in captured.values("public.customers")] == ["été", "hiver à"]
