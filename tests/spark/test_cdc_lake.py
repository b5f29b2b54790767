"""The Spark half of the example of change data capture: Delta tables made of the topics are equal through a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable, write_deltalake

from examples.cdc import lake, shop
from odradek.capture import capture
from odradek.capture import database as capture_database
from odradek.capture import formats as capture_formats
from tests.spark import jvm
from tests.spark.jobs import ROOT, environment
from tests.spark.test_merging_sinks import batches
from tests.support.nodes.apache_kafka import KafkaUnavailableError, find_java
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres


@contextmanager
def program(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A part of the example, with its JVM in a process group of its own, which is killed at the end."""
    command = [sys.executable, "-m", "examples.cdc", *arguments, "--folder", str(folder / "lake")]
    settings = environment(folder) | {"JAVA_TOOL_OPTIONS": jvm.options()}
    with subprocess.Popen(command, cwd=ROOT, env=settings, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def run(*arguments: str, folder: Path) -> int:
    with program(*arguments, folder=folder) as process:
        return process.wait(240)


def version(place: Path) -> int:
    return DeltaTable(place).version() if DeltaTable.is_deltatable(str(place)) else -1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tables_of_the_lake_are_equal(tmp_path: Path) -> None:
    try:
        find_java()
    except KafkaUnavailableError as error:
        pytest.skip(f"needs Java 17 for Spark: {error}")
    with (
        Postgres("wal_level=logical") as postgres,
        Node(tmp_path) as node,
        psycopg.connect(postgres.url, autocommit=True) as database,
        capture_database.Database(postgres.url, "odradek") as captured,
    ):
        where = ["--database", postgres.url, "--bootstrap", node.bootstrap]
        database.execute(shop.SCHEMA)
        shop.work(database, 1, 60)
        clients = {"bootstrap.servers": node.bootstrap}
        options = capture.Options("odradek", tuple(shop.TABLES))
        table = lake.place_of(tmp_path / "lake", shop.TABLES[0])
        assert run("check", *where, folder=tmp_path) == 1
        with closing(capture.Capture(captured, clients, options, capture_formats.RowFormat)) as capturing:
            with program("lake", *where, folder=tmp_path) as process:
                deadline = time.monotonic() + 600
                began: int | None = None
                while began is None or version(table) < began + 2:  # it works on changes that come meanwhile
                    assert process.poll() is None and time.monotonic() < deadline
                    if began is None and version(table) > 0:
                        began = version(table)
                    if began is not None:
                        shop.work(database, 2, 5)
                        capturing.step()
                    time.sleep(0.05)
                shop.work(database, 3, 100)
                capturing.step()
            while capturing.step():
                continue
        assert run("lake", "--until-idle", *where, folder=tmp_path) == 0
        assert run("check", *where, folder=tmp_path) == 0
        for name in shop.TABLES:
            columns = lake.columns_of(database, name)
            assert lake.rows(tmp_path / "lake", name, columns).total() > 3, "nothing was compared"
            numbers = [batch for _, batch in batches(str(lake.place_of(tmp_path / "lake", name)))]
            assert numbers == list(range(len(numbers))), "each batch once"
        write_deltalake(table, DeltaTable(table).to_pyarrow_table().slice(0, 1), mode="append")
        assert run("check", *where, folder=tmp_path) == 1
