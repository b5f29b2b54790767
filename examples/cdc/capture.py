"""From the database's log to a compacted topic for each table: every change once, whole transactions at a time.

How far it came is a record of its own, in the same transaction of Kafka as the changes. The database gets it
afterwards; where a kill comes between, it repeats changes, and they are known by their place in its log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from confluent_kafka import KafkaException, Producer
from psycopg import sql

from examples.cdc.pgoutput import Begin, Change, Commit, Reader, Row
from examples.topics import create_topic, records

SLOT = PUBLICATION = "odradek_cdc"
POSITIONS = "cdc-positions"
PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact"}
CHANGES_AT_ONCE = 500
PAUSE_S = 0.1
TIMEOUT_S = 30.0
# A large transaction of the database is one of Kafka's. Brokers allow it a quarter of an hour at most.
TRANSACTION_MS = 900_000
QUEUE = 10_000  # records that wait in memory for the broker; a transaction may have any number
PRIMARY_KEYS = """
SELECT attrelid::regclass::text, array_agg(attname::text ORDER BY attname) FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indisprimary GROUP BY attrelid
"""
PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1', 'publication_names', %s)
"""


def topic_of(table: str) -> str:
    """`cdc.public.customers` for the table public.customers."""
    return f"cdc.{table}"


class Capture:
    """The one process that reads a database's log; a second one that starts fences the first.

    Args:
        database: in autocommit, by a role that may replicate; `wal_level=logical`.
        tables: as schema.table, each with a primary key.
    """

    def __init__(self, bootstrap: str, database: psycopg.Connection[Any], tables: list[str]) -> None:
        self._database = database
        self._reader = Reader()
        for topic, partitions in [(POSITIONS, 1), *((topic_of(table), PARTITIONS) for table in tables)]:
            create_topic(bootstrap, topic, partitions, COMPACTED)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"cdc-{SLOT}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "queue.buffering.max.messages": QUEUE,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._position = max((int(message.value() or 0) for message in records(bootstrap, POSITIONS)), default=-1)
        database.execute("SET search_path TO ''")  # names of tables come with their schema
        self._publish(tables)
        keys = dict(database.execute(PRIMARY_KEYS).fetchall())
        if missing := [table for table in tables if table not in keys]:
            raise SystemExit(f"no primary key, which is to be the key of the records: {', '.join(missing)}")
        self._keys: dict[str, list[str]] = {table: keys[table] for table in tables}
        if self._position < 0:
            self._copy(tables)

    def run(self) -> None:
        """Follow the log until the process ends."""
        while True:
            if not self.step():
                time.sleep(PAUSE_S)

    def step(self) -> int:
        """Send the next transactions of the database; returns how many changes that were.

        Changes are sent as they are read, so that a transaction of millions of rows is never in memory as a whole.
        """
        position, sent, confirmed = self._position, 0, False
        is_new = False
        with self._none_left_open(), self._database.cursor() as cursor:
            for (data,) in cursor.stream(PEEK, [SLOT, CHANGES_AT_ONCE, PUBLICATION]):
                confirmed = True
                said = self._reader.read(data)
                if isinstance(said, Begin):
                    # One that committed before our position ends there at the latest: it is in the topics.
                    is_new = said.commit_lsn >= self._position
                elif isinstance(said, Change) and is_new:
                    if not sent:
                        self._producer.begin_transaction()
                    self._send(said)
                    sent += 1
                elif isinstance(said, Commit):
                    position = max(position, said.end_lsn)
        if sent:
            self._end_transaction(position)
        if confirmed:
            self._database.execute("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s)", [SLOT, position])
        return sent

    @contextmanager
    def _none_left_open(self) -> Iterator[None]:
        """Abort Kafka's transaction where an error ends us in it: readers of what is committed would wait behind it."""
        try:
            yield
        except BaseException:  # Ctrl-C, too: the transaction would stay open for its whole timeout
            with suppress(
                KafkaException
            ):  # there is none, or another process has fenced us; the error itself is reported
                self._producer.abort_transaction(TIMEOUT_S)
            raise

    def _send(self, change: Change) -> None:
        """The row under its primary key; nothing under the key that it had, where it is gone or has another one."""
        table = change.relation.name
        before, after = (None if row is None else self._key(table, row) for row in (change.before, change.after))
        if before is not None and before != after:
            self._produce(topic_of(table), None, before)
        if after is not None:
            self._produce(topic_of(table), json.dumps(change.after), after)

    def _produce(self, topic: str, value: str | None, key: str) -> None:
        """Give one record to the producer; wait where its queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _key(self, table: str, row: Row) -> str:
        return json.dumps({column: row[column] for column in self._keys[table]})

    def _end_transaction(self, position: int) -> None:
        self._produce(POSITIONS, str(position), SLOT)
        self._producer.flush()  # waits for a large transaction; what is not stored fails the commit
        self._producer.commit_transaction(TIMEOUT_S)
        self._position = position

    def _publish(self, tables: list[str]) -> None:
        """Let the database keep and tell what happens to these tables, with whole rows as they were before."""
        names = [sql.Identifier(*table.split(".")) for table in tables]
        for name in names:
            self._database.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(name))
        known = self._database.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [PUBLICATION]).fetchone()
        statement = "ALTER PUBLICATION {} SET TABLE {}" if known else "CREATE PUBLICATION {} FOR TABLE {}"
        self._database.execute(sql.SQL(statement).format(sql.Identifier(PUBLICATION), sql.SQL(", ").join(names)))
        slot = self._database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [SLOT]).fetchone()
        if not slot:
            self._database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])

    def _copy(self, tables: list[str]) -> None:
        """Send the rows that were there before the log began; what changed meanwhile is in the log, and sent again."""
        self._producer.begin_transaction()
        for table in tables:
            rows = sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table.split(".")))
            columns = [column.name for column in self._database.execute(rows + sql.SQL(" LIMIT 0")).description or []]
            # COPY gives values as PostgreSQL's own texts, as its log does, and row by row.
            with self._database.cursor() as cursor, cursor.copy(sql.SQL("COPY ({}) TO STDOUT").format(rows)) as copied:
                for values in copied.rows():
                    row: Row = dict(zip(columns, values, strict=True))
                    self._produce(topic_of(table), json.dumps(row), self._key(table, row))
        self._end_transaction(0)
