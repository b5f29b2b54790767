"""The example of event sourcing: read models equal the events, through a kill, made again, and as of a time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.accounts.generator import commands
from examples.accounts.model import Account, Event, apply, decide
from tests.support.clients.confluent import read_all
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
COUNT = 1500
KINDS = {"opened", "deposited", "withdrawn", "closed"}
REFUSED = {"there is such an account", "there is no such account", "there is not enough money", "there is money left"}


def decided(seed: int, count: int) -> tuple[list[Event], Counter[str]]:
    """The expected end without Kafka, and how often each refusal occurs."""
    accounts: dict[str, Account] = {}
    happened, refused = [], Counter[str]()
    for command in commands(seed, 40, count):
        result = decide(accounts.get(command.account), command)
        if isinstance(result, Event):
            happened.append(result)
            accounts[result.account] = apply(accounts.get(result.account), result)
            assert accounts[result.account].balance_cents >= 0
        else:
            refused[result] += 1
    return happened, refused


def folded(happened: list[Event]) -> dict[str, Account]:
    accounts: dict[str, Account] = {}
    for event in happened:
        accounts[event.account] = apply(accounts.get(event.account), event)
    return accounts


def test_decisions_are_the_same_each_time_and_of_every_kind() -> None:
    happened, refused = decided(1, 3000)
    assert (happened, refused) == decided(1, 3000)
    assert {event.kind for event in happened} == KINDS
    assert set(refused) == REFUSED


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def program(bootstrap: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "examples.accounts", "--bootstrap", bootstrap, *arguments]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=-1, text=True)


def run(bootstrap: str, *arguments: str) -> str:
    process = program(bootstrap, *arguments)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0
    return output


def rows(postgres: Postgres, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgres.url) as connection:
        try:
            return list(connection.execute(query).fetchall())
        except psycopg.errors.UndefinedTable:
            return []


def assert_model(bootstrap: str, postgres: Postgres, model: str, happened: list[Event]) -> None:
    """Tables and topic of a read model are what the events make."""
    expected = {a.account: (a.owner, a.open, a.balance_cents) for a in folded(happened).values()}
    found = rows(postgres, f"SELECT account, owner, open, balance_cents FROM {model}.accounts")
    assert {row[0]: row[1:] for row in found} == expected
    turnover = rows(postgres, f"SELECT kind, sum(events)::int, sum(cents)::int FROM {model}.turnover GROUP BY kind")
    for kind, events, cents in turnover:
        of_kind = [event.cents for event in happened if event.kind == kind]
        assert (events, cents) == (len(of_kind), sum(of_kind))
    newest = {
        (m.key() or b"").decode(): json.loads(m.value() or b"") for m in read_all(bootstrap, f"accounts-{model}", 3)
    }
    assert {name: tuple(state.values()) for name, state in newest.items()} == expected


def test_read_models_are_what_the_events_make(tmp_path: Path, postgres: Postgres) -> None:
    happened, refused = decided(1, COUNT)
    with Node(tmp_path) as node:
        output = run(node.bootstrap, "send", "--commands", str(COUNT))
        for reason, count in refused.items():
            assert f"{count:7,} {reason}" in output

        reading = ("--database", postgres.url, "--model")
        projecting = program(node.bootstrap, "project", *reading, "v1")
        eventually(lambda: rows(postgres, "SELECT 1 FROM v1.offsets"), "no event is projected", pause_s=0.01)
        projecting.kill()
        projecting.communicate()
        run(node.bootstrap, "project", *reading, "v1", "--until-idle")
        assert_model(node.bootstrap, postgres, "v1", happened)
        run(node.bootstrap, "ask", *reading, "v1")

        # A model that is made again from offset 0, while the other one is asked.
        run(node.bootstrap, "project", *reading, "v2", "--until-idle")
        assert_model(node.bootstrap, postgres, "v2", happened)
        assert "0 rows, 0 in the topic" in run(node.bootstrap, "check", *reading, "v1")
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("UPDATE v1.accounts SET balance_cents = 1 WHERE account = 'generated-0003'")
            checking = program(node.bootstrap, "check", *reading, "v1")
            assert "1 rows, 0 in the topic" in checking.communicate(timeout=180)[0] and checking.returncode == 1
            connection.execute("DELETE FROM v1.accounts")
        run(node.bootstrap, "ask", *reading, "v2")
        assert len(rows(postgres, "SELECT account FROM public.accounts")) == len(folded(happened))

        # An audit: the state of an account at some time in the past, and its events until then.
        at = random.Random(1).choice(happened[len(happened) // 2 :])
        before = [event for event in happened if event.account == at.account and event.at_ms <= at.at_ms]
        asked_at = datetime.fromtimestamp(at.at_ms / 1000, UTC).isoformat()
        reported = run(node.bootstrap, "audit", "--account", at.account, "--at", asked_at).splitlines()
        assert [line.split()[2] for line in reported] == [event.kind for event in before]
        balance = folded(before)[at.account].balance_cents
        assert reported[-1].endswith(f"balance {balance / 100:10,.2f}")
