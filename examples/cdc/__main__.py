"""Change data capture: a database's changes into topics, and from there into tables elsewhere.

python -m examples.cdc shop    --database postgresql://user@host/shop         made-up work in made-up tables
python -m examples.cdc capture --database postgresql://user@host/shop
python -m examples.cdc upsert  --database postgresql://user@host/elsewhere --schema copy
"""

from __future__ import annotations

import argparse

import psycopg

from examples.cdc.capture import Capture
from examples.cdc.shop import SCHEMA, TABLES, work
from examples.cdc.upsert import Copy


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.cdc", description=__doc__)
    parser.add_argument("part", choices=["shop", "capture", "upsert"])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--database", required=True)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="schema.table, each with a primary key")
    parser.add_argument("--schema", default="copy", help="where the upserted tables are")
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
            Capture(given.bootstrap, database, given.tables).run()
        else:
            Copy(given.bootstrap, database, given.schema, given.tables).run(until_idle=given.until_idle)


if __name__ == "__main__":
    main()
