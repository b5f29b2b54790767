"""Accounts: send wishes that are made up, keep read models, and ask what was when.

python -m examples.accounts send --commands 2000
python -m examples.accounts project --database postgresql://user@host/bank --model v1
python -m examples.accounts ask --database postgresql://user@host/bank --model v1
python -m examples.accounts check --database postgresql://user@host/bank --model v1
python -m examples.accounts audit --account generated-0003 --at 2026-01-01T12:00:00+00:00
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any

import psycopg

from examples.accounts import read_side, write_side
from examples.accounts.generator import commands
from examples.accounts.model import Account, apply
from examples.topics import create_topic


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.accounts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parts = parser.add_subparsers(dest="part", required=True)
    sending = parts.add_parser("send")
    sending.add_argument("--commands", type=int, default=2000)
    sending.add_argument("--accounts", type=int, default=40)
    sending.add_argument("--seed", type=int, default=1)
    for name in ("project", "ask", "check"):
        reading = parts.add_parser(name)
        reading.add_argument("--database", required=True)
        reading.add_argument("--model", default="v1", help="a schema of the database")
        if name == "project":
            reading.add_argument("--until-idle", action="store_true", help="end when all events are taken")
    auditing = parts.add_parser("audit")
    auditing.add_argument("--account", required=True)
    auditing.add_argument("--at", type=datetime.fromisoformat, default=datetime.now(UTC))
    given = parser.parse_args()
    create_topic(given.bootstrap, write_side.EVENTS, write_side.PARTITIONS, write_side.KEPT_FOREVER)
    if given.part == "send":
        counted = write_side.handle(given.bootstrap, commands(given.seed, given.accounts, given.commands))
        for what, count in counted.most_common():
            print(f"{count:7,} {what}")
    elif given.part == "audit":
        audit(given.bootstrap, given.account, round(given.at.timestamp() * 1000))
    else:
        with psycopg.connect(given.database) as database:
            if given.part == "project":
                read_side.project(given.bootstrap, database, given.model, until_idle=given.until_idle)
            elif given.part == "ask":
                read_side.ask(database, given.model)
            else:
                return 0 if check(given.bootstrap, database, given.model) else 1
    return 0


def audit(bootstrap: str, name: str, at_ms: int) -> None:
    """Print what happened to one account until a time, and how it was after each of it."""
    account: Account | None = None
    for event in write_side.events(bootstrap):
        if event.account == name and event.at_ms <= at_ms:
            account = apply(account, event)
            at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(" ", "seconds")
            print(f"{at}  {event.kind:10} {event.cents / 100:10,.2f}  balance {account.balance_cents / 100:10,.2f}")


def check(bootstrap: str, database: psycopg.Connection[Any], model: str) -> bool:
    """Whether rows and topic of a read model are what all events make, from the first one on; printed in one line."""
    states = write_side.accounts_at(bootstrap).values()
    expected = {each.account: (each.owner, each.open, each.balance_cents) for each in states}
    in_rows, in_topic = read_side.rows(database, model), read_side.states(bootstrap, model)
    wrong = [
        sum(expected.get(name) != found.get(name) for name in expected.keys() | found) for found in (in_rows, in_topic)
    ]
    print(
        f"{len(expected):,} accounts by the events; otherwise in {model}: {wrong[0]:,} rows, {wrong[1]:,} in the topic"
    )
    return wrong == [0, 0]


if __name__ == "__main__":
    sys.exit(main())
