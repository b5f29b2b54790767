"""The example of an idempotent consumer: rows equal unique ids after ten kills and a full replay."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.idempotent.generator import payments
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PAYMENTS = 3000


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def program(bootstrap: str, part: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.idempotent", "--bootstrap", bootstrap, part, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def rows(postgres: Postgres) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgres.url) as connection:
        if connection.execute("SELECT to_regclass('payments')").fetchone() == (None,):
            return []
        return list(connection.execute("SELECT id, account, amount_cents FROM payments ORDER BY id").fetchall())


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_rows_equal_unique_ids_after_kills_and_a_replay(tmp_path: Path, postgres: Postgres, kills: int) -> None:
    expected = sorted({(each.id, each.account, each.amount_cents) for each in payments(1, PAYMENTS)})
    assert len(expected) == PAYMENTS < len(list(payments(1, PAYMENTS)))
    database = ("--database", postgres.url)
    with Node(tmp_path) as node:
        assert program(node.bootstrap, "send", "--payments", str(PAYMENTS)).wait(180) == 0
        for _ in range(kills):
            process = program(node.bootstrap, "take", *database)
            before = len(rows(postgres))
            eventually(lambda before=before: before == PAYMENTS or len(rows(postgres)) > before, "no payment is taken")
            process.kill()
            process.wait()
        for group in ("payments-to-database", "a full replay"):
            assert program(node.bootstrap, "take", *database, "--until-idle", "--group", group).wait(timeout=180) == 0
            assert rows(postgres) == expected
        assert program(node.bootstrap, "check", *database).wait(180) == 0
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("DELETE FROM payments WHERE id = 'payment-0000007'")
        assert program(node.bootstrap, "check", *database).wait(180) == 1
