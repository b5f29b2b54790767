"""The example of change data capture: topics have each change once through kills, and tables made of them are equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.cdc import shop
from tests.support.clients.confluent import admin, await_ends, read_all
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
BEFORE, MEANWHILE = 30, 250
# The last transaction of all: a reader that has seen it has seen everything.
LAST = "INSERT INTO public.stock VALUES (99, 'the last one', 0)"
COUNTERS = """
CREATE TABLE public.counted (changes bigint);
INSERT INTO public.counted VALUES (0);
CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN UPDATE public.counted SET changes = changes + CASE
  WHEN TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'customers' AND to_jsonb(OLD)->'id' <> to_jsonb(NEW)->'id' THEN 2
  ELSE 1 END;
RETURN NULL; END $$;
CREATE TRIGGER c AFTER INSERT OR UPDATE OR DELETE ON public.customers FOR EACH ROW EXECUTE FUNCTION count_change();
CREATE TRIGGER s AFTER INSERT OR UPDATE OR DELETE ON public.stock FOR EACH ROW EXECUTE FUNCTION count_change();
"""


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres("wal_level=logical") as server:
        yield server


def program(bootstrap: str, database: str, *arguments: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "examples.cdc", *arguments, "--bootstrap", bootstrap, "--database", database]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})


def capture(bootstrap: str, database: str) -> subprocess.Popen[bytes]:
    tables = [word for table in shop.TABLES for word in ("--table", table)]
    command = [sys.executable, "-m", "odradek", "capture", "run", "--database", database, *tables]
    return subprocess.Popen([*command, "--bootstrap-server", bootstrap])


def rows(postgres: Postgres, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgres.url) as connection:
        return list(connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall())


def changes(bootstrap: str) -> list[Any]:
    found: list[Any] = []
    for table in shop.TABLES:
        found += read_all(bootstrap, f"cdc.{table}", 3, isolation_level="read_committed")
    return found


def await_all_ended(bootstrap: str) -> None:
    """Wait until readers of what is committed see all: an end is answered before its markers are written."""
    for table in shop.TABLES:
        await_ends(bootstrap, f"cdc.{table}", 3)


@pytest.mark.timeout(900)
def test_tables_made_of_the_topics_are_equal(tmp_path: Path, postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as database:
        database.execute(shop.SCHEMA)
        shop.work(database, 1, BEFORE)
        database.execute("CREATE SCHEMA copy")
        for table in ("customers", "stock"):
            database.execute(f"CREATE TABLE copy.{table} (LIKE public.{table} INCLUDING ALL)")
        database.execute(COUNTERS)
    there = sum(len(rows(postgres, table)) for table in shop.TABLES)

    def go_on_working() -> None:
        with psycopg.connect(postgres.url, autocommit=True) as database:
            shop.work(database, 2, MEANWHILE)
            database.execute(LAST)

    with Node(tmp_path) as node:
        assert program(node.bootstrap, postgres.url, "check", "--schema", "nowhere").wait(180) == 1
        capturing = capture(node.bootstrap, postgres.url)
        deadline = time.monotonic() + 300
        while (
            "cdc.public.stock" not in admin(node.bootstrap).list_topics(timeout=30).topics
            or len(changes(node.bootstrap)) < there
        ):
            assert time.monotonic() < deadline and capturing.poll() is None
        working = threading.Thread(target=go_on_working)
        working.start()
        for _ in range(2):
            before = len(changes(node.bootstrap))
            while len(changes(node.bootstrap)) == before and working.is_alive():
                assert time.monotonic() < deadline
            capturing.kill()
            capturing.wait()
            capturing = capture(node.bootstrap, postgres.url)
        working.join()
        upserting = program(node.bootstrap, postgres.url, "upsert")
        while not any(m.value() and b"the last one" in m.value() for m in changes(node.bootstrap)):
            assert time.monotonic() < deadline and capturing.poll() is None
        upserting.kill()
        upserting.wait()
        capturing.kill()
        capturing.wait()
        await_all_ended(node.bootstrap)
        assert program(node.bootstrap, postgres.url, "upsert", "--until-idle").wait(180) == 0
        assert program(node.bootstrap, postgres.url, "check").wait(180) == 0
        for table in ("customers", "stock"):
            assert rows(postgres, f"copy.{table}") == rows(postgres, f"public.{table}")
        found = changes(node.bootstrap)
        (counted,) = rows(postgres, "public.counted, (SELECT 1) AS one")
        assert len(found) == there + counted[0], "every change once"
        newest = {m.key(): m.value() for m in found if m.topic() == "cdc.public.customers"}
        with psycopg.connect(postgres.url) as database:
            database.execute("UPDATE copy.stock SET pieces = pieces + 1 WHERE shop = 99")
        assert program(node.bootstrap, postgres.url, "check").wait(180) == 1
        left = {int(json.loads(value)["id"]) for value in newest.values() if value is not None}
        assert left == {row[0] for row in rows(postgres, "public.customers")}
