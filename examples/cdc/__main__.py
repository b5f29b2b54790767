"""Change data capture: a database's changes into topics, and from there into tables elsewhere.

python -m examples.cdc shop    --database postgresql://user@host/shop         made-up work in made-up tables
python -m examples.cdc capture --database postgresql://user@host/shop
python -m examples.cdc upsert  --database postgresql://user@host/elsewhere --schema copy
python -m examples.cdc check   --database postgresql://user@host/shop --copy postgresql://user@host/elsewhere
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

import psycopg
from psycopg import sql

from examples.cdc.capture import Capture
from examples.cdc.pgoutput import TruncatedError
from examples.cdc.shop import SCHEMA, TABLES, work
from examples.cdc.upsert import Copy


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.cdc", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["shop", "capture", "upsert", "check"])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--database", required=True)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="schema.table, each with a primary key")
    parser.add_argument("--schema", default="copy", help="where the upserted tables are")
    parser.add_argument("--copy", help="check: the database with the upserted tables; the same one by default")
    parser.add_argument("--until-idle", action="store_true", help="upsert: end when all changes are taken")
    parser.add_argument("--transactions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with psycopg.connect(given.database, autocommit=given.part == "capture") as database:
        if given.part == "shop":
            database.execute(SCHEMA)
            database.commit()
            work(database, given.seed, given.transactions)
        elif given.part == "capture":
            try:
                Capture(given.bootstrap, database, given.tables).run()
            except TruncatedError as error:
                print(f"capture ends: {error}. docs/examples/cdc.md says how to begin anew", file=sys.stderr)
                return 1
        elif given.part == "upsert":
            Copy(given.bootstrap, database, given.schema, given.tables).run(until_idle=given.until_idle)
        else:
            with psycopg.connect(given.copy or given.database) as copied:
                equal = [check(database, copied, table, given.schema) for table in given.tables]
                return 0 if all(equal) else 1
    return 0


def check(database: psycopg.Connection[Any], copied: psycopg.Connection[Any], table: str, schema: str) -> bool:
    """Whether a table and its copy have the same rows; told in one line."""
    there = rows(database, sql.Identifier(*table.split(".")))
    here = rows(copied, sql.Identifier(schema, table.split(".")[-1]))
    lost, others = (there - here).total(), (here - there).total()
    print(f"{table}: {there.total():,} rows, {here.total():,} in the copy, {lost:,} missing, {others:,} others")
    return not lost and not others


def rows(database: psycopg.Connection[Any], name: sql.Identifier) -> Counter[tuple[str | None, ...]]:
    """The rows of a table as texts."""
    with database.cursor() as cursor, cursor.copy(sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(name)) as found:
        return Counter(found.rows())


if __name__ == "__main__":
    sys.exit(main())
