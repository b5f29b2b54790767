"""From the topics to tables that are like the first ones: rows by their key, each change once."""

from __future__ import annotations

import json
from typing import Any

import psycopg
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from psycopg import sql

from examples.cdc.shop import PARTITIONS, topic_of
from examples.topics import reader

BATCH = 500
OFFSETS = (
    "CREATE TABLE IF NOT EXISTS {} (topic text, partition int, next_offset bigint, PRIMARY KEY (topic, partition))"
)
REACHED = (
    "INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset"
)


class Copy:
    """Tables in a schema of their own, which exist and have the keys and columns of the first ones."""

    def __init__(self, bootstrap: str, database: psycopg.Connection[Any], schema: str, tables: list[str]) -> None:
        self._database = database
        self._targets = {topic_of(table): sql.Identifier(schema, table.split(".")[-1]) for table in tables}
        self._offsets = sql.Identifier(schema, "cdc_offsets")
        database.execute(sql.SQL(OFFSETS).format(self._offsets))
        found = database.execute(
            sql.SQL("SELECT topic, partition, next_offset FROM {}").format(self._offsets)
        ).fetchall()
        database.commit()
        reached = {(topic, partition): offset for topic, partition, offset in found}
        places = [(topic, partition) for topic in self._targets for partition in range(PARTITIONS)]
        self._waiting = set(places)
        self._consumer = reader(bootstrap)
        self._consumer.assign([TopicPartition(*place, reached.get(place, 0)) for place in places])

    def run(self, *, until_idle: bool) -> None:
        """Take changes as they come; with `until_idle` those that there are."""
        while self._waiting or not until_idle:
            self.step()
        self._consumer.close()

    def step(self) -> None:
        """Take some changes, and how far they go, in one transaction."""
        messages = [message for message in self._consumer.consume(BATCH, 0.2) if self._is_record(message)]
        with self._database.transaction(), self._database.cursor() as cursor:
            for message in messages:
                cursor.execute(*self._statement(message))
            following = {(m.topic(), m.partition()): (m.offset() or 0) + 1 for m in messages}
            reached = [(*place, offset) for place, offset in following.items()]
            cursor.executemany(sql.SQL(REACHED).format(self._offsets), reached)

    def _statement(self, message: Message) -> tuple[sql.Composed, list[str | None]]:
        """Upsert or delete. Values are texts, which PostgreSQL reads as the types of its columns."""
        target, key = self._targets[message.topic() or ""], json.loads(message.key() or b"{}")
        if message.value() is None:
            same = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in key)
            return sql.SQL("DELETE FROM {} WHERE {}").format(target, same), list(key.values())
        row = json.loads(message.value() or b"{}")
        columns = [sql.Identifier(name) for name in row]
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}").format(
            target,
            sql.SQL(", ").join(columns),
            sql.SQL(", ").join([sql.Placeholder()] * len(row)),
            sql.SQL(", ").join(sql.Identifier(name) for name in key),
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(column) for column in columns),
        )
        return statement, list(row.values())

    def _is_record(self, message: Message) -> bool:
        error, place = message.error(), (message.topic() or "", message.partition() or 0)
        if error is None:
            return True
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        self._waiting.discard(place)
        return False
