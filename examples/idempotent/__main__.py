"""Payments from a topic into PostgreSQL: every payment once, however often its record is read.

    python -m examples.idempotent --bootstrap 127.0.0.1:9092 --database postgresql://user@host/shop

A record is read again where a consumer dies between its work and the commit of its offset, where partitions move to
another member meanwhile, where a producer without idempotence sent it twice, and where someone starts over. So the work
is made such that doing it again changes nothing: the payment's own id is the key of its row.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

TABLE = "CREATE TABLE IF NOT EXISTS payments (id text PRIMARY KEY, account text NOT NULL, amount_cents bigint NOT NULL)"
INSERT = "INSERT INTO payments (id, account, amount_cents) VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING"
BATCH = 200
POLL_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.idempotent", description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--database", required=True)
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--group", default="payments-to-database")
    parser.add_argument("--until-idle", action="store_true", help="end when every partition is read to its end")
    given = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([given.topic])
    with psycopg.connect(given.database) as database:
        database.execute(TABLE)
        database.commit()
        run(consumer, database, until_idle=given.until_idle)
    consumer.close()


def run(consumer: Consumer, database: psycopg.Connection[Any], *, until_idle: bool) -> None:
    """Work first, then the offset: what dies in between is done again, and a second time does nothing."""
    ended: set[tuple[str | None, int | None]] = set()
    while True:
        messages = consumer.consume(BATCH, POLL_S)
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                ended.discard((message.topic(), message.partition()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
            else:
                raise KafkaException(error)
        if records:
            take(database, records)
            consumer.commit(asynchronous=False)
        assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        if until_idle and assigned and assigned <= ended:
            return


def take(database: psycopg.Connection[Any], records: Iterable[Message]) -> None:
    """Insert the payments of a batch in one transaction; those that are there already stay as they are."""
    payments = [json.loads(record.value() or b"{}") for record in records]
    with database.transaction(), database.cursor() as cursor:
        cursor.executemany(INSERT, [(each["id"], each["account"], each["amount_cents"]) for each in payments])


if __name__ == "__main__":
    main()
