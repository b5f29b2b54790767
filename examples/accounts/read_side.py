"""The read side: what people ask about, made of the events, in PostgreSQL and in a compacted topic.

A read model is a schema of the database and a topic: another one can be filled beside the one that is asked. How far it
got is a table of its own, changed in the transaction that changes its rows: so each event counts once whatever dies,
and a model that is rebuilt begins at offset 0 by itself.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from psycopg import sql

from examples.accounts.model import Event
from examples.accounts.write_side import EVENTS, PARTITIONS
from examples.topics import create_topic, reader, records, refuse_failure

BATCH = 500
# Whose an account is, whether it is open, and its balance in cents.
State = tuple[str, bool, int]
TABLES = """
CREATE TABLE IF NOT EXISTS accounts (
    account text PRIMARY KEY, owner text NOT NULL, open boolean NOT NULL, balance_cents bigint NOT NULL);
CREATE TABLE IF NOT EXISTS turnover (
    day date, kind text, events bigint NOT NULL, cents bigint NOT NULL, PRIMARY KEY (day, kind));
CREATE TABLE IF NOT EXISTS offsets (partition int PRIMARY KEY, next_offset bigint NOT NULL);
"""
CHANGE = """
INSERT INTO accounts VALUES (%(account)s, %(owner)s, true, 0)
ON CONFLICT (account) DO UPDATE SET open = %(kind)s <> 'closed', balance_cents = accounts.balance_cents + %(cents)s
"""
COUNT = """
INSERT INTO turnover VALUES (to_timestamp(%(at_ms)s / 1000.0)::date, %(kind)s, 1, %(cents)s)
ON CONFLICT (day, kind) DO UPDATE SET events = turnover.events + 1, cents = turnover.cents + excluded.cents
"""
REACHED = "INSERT INTO offsets VALUES (%s, %s) ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"
CHANGED = "SELECT account, owner, open, balance_cents FROM accounts WHERE account = ANY(%s)"


def topic_of(model: str) -> str:
    """The compacted topic of a read model."""
    return f"accounts-{model}"


def project(bootstrap: str, database: psycopg.Connection[Any], model: str, *, until_idle: bool) -> None:
    """Bring a read model up to date; go on with what comes, or end there with `until_idle`."""
    create_topic(bootstrap, topic_of(model), PARTITIONS, {"cleanup.policy": "compact"})
    database.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(model)))
    database.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(model)))
    database.execute(TABLES)
    database.execute("SELECT pg_advisory_lock(hashtext(%s))", [f"projector of {model}"])  # one at a time
    reached = dict(database.execute("SELECT partition, next_offset FROM offsets").fetchall())
    database.commit()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    consumer = event_consumer(bootstrap, reached)
    waiting = set(range(PARTITIONS))
    while waiting or not until_idle:
        if messages := taken(consumer.consume(BATCH, 0.3), waiting):
            with database.transaction():
                change(database, producer, model, messages)
    consumer.close()


def change(database: psycopg.Connection[Any], producer: Producer, model: str, messages: list[Message]) -> None:
    """Take some events into the rows, the accounts' new states into the topic, and the offsets to where that is.

    The topic is first: should the database not commit, its states are written again, which changes nothing there.
    """
    happened = [Event.from_json(message.value()) for message in messages]
    with database.cursor() as cursor:
        for event in happened:
            given = {name: getattr(event, name) for name in Event.__slots__}
            cursor.execute(CHANGE, given)
            cursor.execute(COUNT, given)
        cursor.execute(CHANGED, [[event.account for event in happened]])
        for account, *state in cursor.fetchall():
            value = dict(zip(("owner", "open", "balance_cents"), state, strict=True))
            producer.produce(topic_of(model), json.dumps(value), account, on_delivery=refuse_failure)
        if producer.flush(30):
            raise TimeoutError("states are not acknowledged after 30 s")
        following = {message.partition(): (message.offset() or 0) + 1 for message in messages}
        cursor.executemany(REACHED, list(following.items()))


def ask(database: psycopg.Connection[Any], model: str) -> None:
    """From now on those who ask for `public.accounts` and `public.turnover` are answered from this model."""
    with database.transaction():
        for name in ("accounts", "turnover"):
            view, table = sql.Identifier("public", name), sql.Identifier(model, name)
            database.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(view))
            database.execute(sql.SQL("CREATE VIEW {} AS SELECT * FROM {}").format(view, table))


def rows(database: psycopg.Connection[Any], model: str) -> dict[str, State]:
    """The accounts as the database has them."""
    query = sql.SQL("SELECT account, owner, open, balance_cents FROM {}").format(sql.Identifier(model, "accounts"))
    return {account: (owner, is_open, cents) for account, owner, is_open, cents in database.execute(query)}


def states(bootstrap: str, model: str) -> dict[str, State]:
    """The accounts as the compacted topic has them: the newest record under each key."""
    newest = {(message.key() or b"").decode(): message.value() for message in records(bootstrap, topic_of(model))}
    found = {account: json.loads(value or b"{}") for account, value in newest.items()}
    return {account: (each["owner"], each["open"], each["balance_cents"]) for account, each in found.items()}


def event_consumer(bootstrap: str, reached: dict[int, int]) -> Consumer:
    """A consumer of all events without a group: the database knows where it is."""
    consumer = reader(bootstrap)
    consumer.assign([TopicPartition(EVENTS, partition, reached.get(partition, 0)) for partition in range(PARTITIONS)])
    return consumer


def taken(messages: list[Message], waiting: set[int]) -> list[Message]:
    """The records among what a consumer gave; partitions that are at their end leave `waiting`."""
    found = []
    for message in messages:
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            waiting.discard(message.partition() or 0)
        else:
            raise KafkaException(error)
    return found
