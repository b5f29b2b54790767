"""The example of an idempotent consumer: rows equal unique ids after ten kills and a full replay."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import create_topic, produce_all
from tests.support.node import Node
from tests.support.postgres import Postgres

psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')

ROOT = Path(__file__).resolve().parents[2]
PAYMENTS = 3000


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def consumer(bootstrap: str, database: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.idempotent", "--bootstrap", bootstrap, "--database", database]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([*command, *arguments], cwd=ROOT, env=environment)


def rows(postgres: Postgres) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgres.url) as connection:
        if connection.execute("SELECT to_regclass('payments')").fetchone() == (None,):
            return []
        return connection.execute("SELECT id, account, amount_cents FROM payments ORDER BY id").fetchall()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_rows_equal_unique_ids_after_kills_and_a_replay(tmp_path: Path, postgres: Postgres, kills: int) -> None:
    source = random.Random(5)
    payments = [(f"p{number:05d}", f"a{number % 50}", number) for number in range(PAYMENTS)]
    values = [json.dumps({"id": i, "account": a, "amount_cents": n}).encode() for i, a, n in payments]
    with Node(tmp_path) as node:
        create_topic(node.bootstrap, "payments", 3)
        # The producer sends a tenth of them twice, as one without idempotence may.
        sent = [*values, *source.sample(values, PAYMENTS // 10)]
        produce_all(node.bootstrap, "payments", [(value[8:13], value) for value in sent])
        for _ in range(kills):
            process = consumer(node.bootstrap, postgres.url)
            before, deadline = len(rows(postgres)), time.monotonic() + 15
            while len(rows(postgres)) == before < PAYMENTS and time.monotonic() < deadline:
                time.sleep(0.02)
            process.kill()
            process.wait()
        for group in ("payments-to-database", "a full replay"):
            assert consumer(node.bootstrap, postgres.url, "--until-idle", "--group", group).wait(timeout=120) == 0
            assert rows(postgres) == payments
