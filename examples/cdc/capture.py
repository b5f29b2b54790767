"""From the database's log to a compacted topic for each table: every change once, whole transactions at a time.

How far it came is a record of its own, in the same transaction of Kafka as the changes. The database is told
afterwards; where a kill comes between, it repeats changes, and they are known by their place in its log.
"""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
from confluent_kafka import Producer
from psycopg import sql

from examples.cdc.pgoutput import Change, Commit, Reader, Row
from examples.topics import create_topic, records

SLOT = PUBLICATION = "odradek_cdc"
POSITIONS = "cdc-positions"
PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact"}
CHANGES_AT_ONCE = 500
PAUSE_S = 0.1
TIMEOUT_S = 30.0
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
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"cdc-{SLOT}"})
        self._producer.init_transactions(TIMEOUT_S)
        self._position = max((int(message.value() or 0) for message in records(bootstrap, POSITIONS)), default=-1)
        database.execute("SET search_path TO ''")  # names of tables come with their schema
        self._publish(tables)
        keys = dict(database.execute(PRIMARY_KEYS).fetchall())
        self._keys: dict[str, list[str]] = {table: keys[table] for table in tables}
        if self._position < 0:
            self._copy(tables)

    def run(self) -> None:
        """Follow the log until the process ends."""
        while True:
            if not self.step():
                time.sleep(PAUSE_S)

    def step(self) -> int:
        """Send the next transactions of the database; returns how many changes that were."""
        found = self._database.execute(PEEK, [SLOT, CHANGES_AT_ONCE, PUBLICATION]).fetchall()
        new, waiting, position = [], [], self._position
        for (data,) in found:
            said = self._reader.read(data)
            if isinstance(said, Change):
                waiting.append(said)
            elif isinstance(said, Commit):
                if said.end_lsn > self._position:
                    new += waiting
                    position = said.end_lsn
                waiting = []
        if position > self._position:
            self._producer.begin_transaction()
            for change in new:
                self._send(change)
            self._end_transaction(position)
        if found:
            self._database.execute("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s)", [SLOT, position])
        return len(new)

    def _send(self, change: Change) -> None:
        """The row under its primary key; nothing under the key that it had, where it is gone or has another one."""
        table = change.relation.name
        before, after = (None if row is None else self._key(table, row) for row in (change.before, change.after))
        if before is not None and before != after:
            self._producer.produce(topic_of(table), None, before)
        if after is not None:
            self._producer.produce(topic_of(table), json.dumps(change.after), after)

    def _key(self, table: str, row: Row) -> str:
        return json.dumps({column: row[column] for column in self._keys[table]})

    def _end_transaction(self, position: int) -> None:
        self._producer.produce(POSITIONS, str(position), SLOT)
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
            cursor = self._database.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table.split("."))), binary=False
            )
            columns = [column.name for column in cursor.description or []]
            found = cursor.pgresult
            assert found is not None
            for number in range(found.ntuples):
                values = [found.get_value(number, field) for field in range(found.nfields)]
                texts = [None if value is None else value.decode() for value in values]
                row = dict(zip(columns, texts, strict=True))
                self._producer.produce(topic_of(table), json.dumps(row), self._key(table, row))
                self._producer.poll(0)
        self._end_transaction(0)
