"""A shop that does not exist, and what happens in its tables, from a seed: its customers are called `generated …`."""

from __future__ import annotations

import random
from typing import Any

import psycopg

TABLES = ["public.customers", "public.stock"]
PARTITIONS = 3  # of each topic, by default
SCHEMA = """
CREATE TABLE IF NOT EXISTS public.customers (
    id bigint PRIMARY KEY, name text NOT NULL, since timestamptz, tags text[], note text);
CREATE TABLE IF NOT EXISTS public.stock (
    shop int, article text, pieces numeric(10, 2), PRIMARY KEY (shop, article));
"""


def topic_of(table: str) -> str:
    """The topic to which `odradek capture run` writes the changes of a table."""
    return f"cdc.{table}"


def work(database: psycopg.Connection[Any], seed: int, transactions: int) -> None:
    """So many transactions, one in ten rolled back: rows come, change, change their key, and go."""
    source = random.Random(seed)
    for _ in range(transactions):
        with database.transaction(force_rollback=source.random() < 0.1):
            for _ in range(source.choice([1, 1, 2, 20])):
                source.choice([_customer, _customer, _stock, _leave, _renumber])(database, source)


def _customer(database: psycopg.Connection[Any], source: random.Random) -> None:
    """A new customer, or another name and tags for one; now and then a long note, which then stays."""
    number = source.randrange(200)
    note = source.randbytes(6000).hex() if source.random() < 0.2 else None
    database.execute(
        "INSERT INTO public.customers VALUES (%s, %s, now(), %s, %s) "
        "ON CONFLICT (id) DO UPDATE SET name = excluded.name, tags = excluded.tags",
        [number, f"generated {source.randrange(1000)} 'Ünïcode'", ["a,b", str(number)], note],
    )


def _stock(database: psycopg.Connection[Any], source: random.Random) -> None:
    given = [source.randrange(3), source.choice(["lamp", "chair", "a|b"]), source.randrange(1000) / 100]
    database.execute(
        "INSERT INTO public.stock VALUES (%s, %s, %s) "
        "ON CONFLICT (shop, article) DO UPDATE SET pieces = excluded.pieces",
        given,
    )


def _leave(database: psycopg.Connection[Any], source: random.Random) -> None:
    database.execute("DELETE FROM public.customers WHERE id = %s", [source.randrange(200)])


def _renumber(database: psycopg.Connection[Any], source: random.Random) -> None:
    """A key that changes is a row that goes and one that comes."""
    old, new = source.randrange(200), source.randrange(200, 1000)
    free = "NOT EXISTS (SELECT 1 FROM public.customers WHERE id = %s)"
    database.execute(f"UPDATE public.customers SET id = %s WHERE id = %s AND {free}", [new, old, new])
