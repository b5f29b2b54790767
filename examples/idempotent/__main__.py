"""Payments from a topic into PostgreSQL: every payment once, however often its record is read.

    python -m examples.idempotent send  --payments 20000     made up, from a seed; a tenth of them is sent twice
    python -m examples.idempotent take  --database postgresql://user@host/shop
    python -m examples.idempotent check --database postgresql://user@host/shop

A record is read again where a consumer dies between its work and the commit of its offset, where partitions move to
another member meanwhile, where a producer without idempotence sent it twice, and where someone starts over. So the work
is made such that doing it again changes nothing: the payment's own id is the key of its row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from examples.idempotent.generator import payments
from examples.topics import create_topic, records, refuse_failure

PARTITIONS = 3
TABLE = "CREATE TABLE IF NOT EXISTS payments (id text PRIMARY KEY, account text NOT NULL, amount_cents bigint NOT NULL)"
INSERT = "INSERT INTO payments (id, account, amount_cents) VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING"
BATCH = 200
POLL_S = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.idempotent", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    parts = parser.add_subparsers(dest="part", required=True)
    sending = parts.add_parser("send")
    sending.add_argument("--payments", type=int, default=20_000)
    sending.add_argument("--seed", type=int, default=1)
    taking = parts.add_parser("take")
    taking.add_argument("--group", default="payments-to-database", help="another one begins at offset 0: a full replay")
    taking.add_argument("--until-idle", action="store_true", help="end when every partition is read to its end")
    checking = parts.add_parser("check")
    for reading in (taking, checking):
        reading.add_argument("--database", required=True)
    given = parser.parse_args()
    create_topic(given.bootstrap, given.topic, PARTITIONS)
    if given.part == "send":
        print(f"{send(given.bootstrap, given.topic, given.seed, given.payments):,} records sent")
        return 0
    with psycopg.connect(given.database) as database:
        if given.part == "check":
            return 0 if check(given.bootstrap, given.topic, database) else 1
        database.execute(TABLE)
        database.commit()
        consumer = consumer_of(given.bootstrap, given.group)
        consumer.subscribe([given.topic])
        run(consumer, database, until_idle=given.until_idle)
        consumer.close()
    return 0


def send(bootstrap: str, topic: str, seed: int, count: int) -> int:
    """Send payments, some of them twice; returns how many records that were."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent = 0
    for payment in payments(seed, count):
        producer.produce(topic, payment.to_json(), payment.account, on_delivery=refuse_failure)
        producer.poll(0)
        sent += 1
    producer.flush()
    return sent


def consumer_of(bootstrap: str, group: str) -> Consumer:
    """A member of the group, which commits only on request."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A member that was killed leaves its partitions after so long.
            "session.timeout.ms": 6000,
        }
    )


def run(consumer: Consumer, database: psycopg.Connection[Any], *, until_idle: bool) -> None:
    """Work first, then the offset: what dies in between is done again, and a second time does nothing."""
    ended: set[tuple[str | None, int | None]] = set()
    while True:
        messages = consumer.consume(BATCH, POLL_S)
        found = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append(message)
                ended.discard((message.topic(), message.partition()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
            else:
                raise KafkaException(error)
        if found:
            take(database, found)
            consumer.commit(asynchronous=False)
        assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        if until_idle and assigned and assigned <= ended:
            return


def take(database: psycopg.Connection[Any], found: Iterable[Message]) -> None:
    """Insert the payments of a batch in one transaction; those that are there already stay as they are."""
    made = [json.loads(message.value() or b"{}") for message in found]
    with database.transaction(), database.cursor() as cursor:
        cursor.executemany(INSERT, [(each["id"], each["account"], each["amount_cents"]) for each in made])


def check(bootstrap: str, topic: str, database: psycopg.Connection[Any]) -> bool:
    """Whether the rows are the payments of the topic, each once; printed in one line."""
    sent = [json.loads(message.value() or b"{}") for message in records(bootstrap, topic)]
    unique = {(each["id"], each["account"], each["amount_cents"]) for each in sent}
    rows = database.execute("SELECT id, account, amount_cents FROM payments").fetchall()
    lost, others = len(unique - set(rows)), len(rows) - len(unique & set(rows))
    print(f"{len(sent):,} records of {len(unique):,} payments, {len(rows):,} rows: {lost:,} lost, {others:,} others")
    return not lost and not others


if __name__ == "__main__":
    sys.exit(main())
