"""Tables elsewhere from the topics that `odradek capture run` writes.

python -m examples.cdc shop    --database postgresql://user@host/shop         made-up work in made-up tables
python -m examples.cdc upsert  --database postgresql://user@host/elsewhere --schema copy
python -m examples.cdc check   --database postgresql://user@host/shop --copy postgresql://user@host/elsewhere
python -m examples.cdc lake    --database postgresql://user@host/shop --folder lake    Delta tables, by Spark
python -m examples.cdc check   --database postgresql://user@host/shop --folder lake
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from examples.cdc.shop import SCHEMA, TABLES, work
from examples.cdc.upsert import Copy


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.cdc", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["shop", "upsert", "lake", "check"])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--database", required=True)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="schema.table, each with a primary key")
    parser.add_argument("--schema", default="copy", help="where the upserted tables are")
    parser.add_argument("--copy", help="check: the database with the upserted tables; the same one by default")
    parser.add_argument("--until-idle", action="store_true", help="upsert, lake: end when all changes are taken")
    parser.add_argument("--folder", type=Path, help="lake, check: where the Delta tables and their checkpoints are")
    parser.add_argument("--transactions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.part == "lake" and given.folder is None:
        parser.error("lake needs --folder, where the tables and their checkpoints are to be")
    with psycopg.connect(given.database, autocommit=given.part == "lake") as database:
        if given.part == "shop":
            database.execute(SCHEMA)
            database.commit()
            work(database, given.seed, given.transactions)
        elif given.part == "upsert":
            Copy(given.bootstrap, database, given.schema, given.tables).run(until_idle=given.until_idle)
        elif given.part == "lake":
            fill_lake(given, database)
        elif given.folder is not None:
            from examples.cdc import lake

            found = {table: lake.rows(given.folder, table, lake.columns_of(database, table)) for table in given.tables}
            return 0 if check(database, found) else 1
        else:
            with psycopg.connect(given.copy or given.database) as copied:
                names = {table: sql.Identifier(given.schema, table.split(".")[-1]) for table in given.tables}
                found = {table: rows(copied, name) for table, name in names.items()}
            return 0 if check(database, found) else 1
    return 0


def fill_lake(given: argparse.Namespace, database: psycopg.Connection[Any]) -> None:
    """Start Spark, and follow the topics."""
    from examples.cdc import lake
    from examples.place import place

    with place("cdc", given) as at:
        run = lake.catch_up if given.until_idle else lake.follow
        run(at.spark, at.bootstrap, database, at.folder, given.tables)


def check(database: psycopg.Connection[Any], found: Mapping[str, Counter[tuple[str | None, ...]]]) -> bool:
    """Whether tables and their copies have the same rows; each is printed in one line."""
    equal = [is_equal(table, rows(database, sql.Identifier(*table.split("."))), here) for table, here in found.items()]
    return all(equal)


def is_equal(table: str, there: Counter[tuple[str | None, ...]], here: Counter[tuple[str | None, ...]]) -> bool:
    """Whether the rows are the same; printed in one line."""
    lost, others = (there - here).total(), (here - there).total()
    print(f"{table}: {there.total():,} rows, {here.total():,} in the copy, {lost:,} missing, {others:,} others")
    return not lost and not others


def rows(database: psycopg.Connection[Any], name: sql.Identifier) -> Counter[tuple[str | None, ...]]:
    """The rows of a table as texts."""
    with database.cursor() as cursor, cursor.copy(sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(name)) as found:
        return Counter(found.rows())


if __name__ == "__main__":
    sys.exit(main())
