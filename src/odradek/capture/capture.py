"""A capture: changes of the database in Kafka transactions, each once, with the position that they reach.

The position in the database's log is a record of a topic of its own, in the same transaction as the changes. The slot
is confirmed afterwards. After a kill in between, the slot has changes again, and the stored position identifies them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.capture.database import CaptureError, Database, Visible
from odradek.capture.formats import Format, Record
from odradek.capture.pgoutput import Begin, Change, Commit, Decoder, Relation, Truncate

CHANGES_AT_ONCE = 500
PAUSE_S = 0.1
TIMEOUT_S = 30.0
# A transaction of the database is one of Kafka's, however large. Brokers allow it a quarter of an hour by default.
TRANSACTION_MS = 900_000
# A snapshot is several transactions of this length: a kill repeats all of it.
SNAPSHOT_TRANSACTION_S = 60.0
QUEUE = 10_000  # records that wait in memory for the broker; a transaction may have any number
COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a capture.

    Attributes:
        name: of the slot, the publication, and in the transactional id.
        tables: as schema.table, each with a primary key.
        topic_prefix: topics are called prefix.schema.table.
        partitions: of topics that are created.
        compacted: whether topics that are created are compacted. Compacted topics take no TRUNCATE of Debezium's
            envelope, which has no key.
        skip_truncate: whether a TRUNCATE that the format has no records for is left out, and does not end the capture.
        snapshot_again: whether to take a snapshot although there is a position, as after a lost slot.
    """

    name: str
    tables: tuple[str, ...]
    topic_prefix: str = "cdc"
    partitions: int = 3
    compacted: bool = True
    skip_truncate: bool = False
    snapshot_again: bool = False

    def topic_of(self, table: str) -> str:
        return f"{self.topic_prefix}.{table}"

    @property
    def positions_topic(self) -> str:
        return f"odradek-capture.{self.name}"


@dataclass(frozen=True, slots=True)
class Position:
    """How far the topics go in the database's log.

    Attributes:
        lsn: all transactions that committed before it are in the topics.
        visible: the snapshot that they began with, as `Visible.parse` reads it.
        snapshot_lsn: transactions that committed before it may be in the snapshot.
    """

    lsn: int
    visible: str
    snapshot_lsn: int

    def has(self, transaction: Begin) -> bool:
        """Whether the topics have the changes of a transaction."""
        if transaction.commit_lsn < self.lsn:
            return True
        return transaction.commit_lsn < self.snapshot_lsn and Visible.parse(self.visible).has(transaction.xid)


class Capture:
    """The one process that captures under a name; a second one that starts fences the first.

    Args:
        database: connected; the capture publishes the tables and creates the slot.
        clients: settings of librdkafka that reach the cluster.
        make_format: gives the format from the columns of the primary key of each table.
        on_snapshot: is called with the number of rows after each transaction of a snapshot.

    Raises:
        CaptureError: the slot is lost, or there is a position and no slot.
        KafkaException, psycopg.Error: the cluster or the database refuses, or does not answer.
    """

    def __init__(
        self,
        database: Database,
        clients: Mapping[str, Any],
        options: Options,
        make_format: Callable[[Mapping[str, list[str]]], Format],
        on_snapshot: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._database = database
        self._options = options
        self._decoder = Decoder()
        self.last_commit_us = 0
        create_topics(clients, options)
        self._producer = Producer(
            {
                **clients,
                "transactional.id": f"odradek-capture-{options.name}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "queue.buffering.max.messages": QUEUE,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        found = read_position(clients, options)
        self._format = make_format(database.publish(options.tables))
        self._confirmed_lsn = 0
        self._position = self._begin(found, on_snapshot)

    def step(self) -> int:
        """Write the next transactions of the database; returns the number of changes, 0 if there are none.

        Changes are sent as they are read, so a transaction of millions of rows is never in memory as a whole.
        """
        end = self._database.flushed_lsn()
        lsn, written, has_messages, is_new = self._position.lsn, 0, False, False
        transaction = Begin(0, 0, 0)
        with self._no_open_transaction(), self._database.changes(CHANGES_AT_ONCE) as messages:
            for message in map(self._decoder.decode, messages):
                has_messages = True
                if isinstance(message, Begin):
                    transaction, is_new = message, not self._position.has(message)
                elif isinstance(message, Commit):
                    lsn = max(lsn, message.end_lsn)
                elif message is not None and is_new:
                    if not written:
                        self._producer.begin_transaction()
                    self._write(message, transaction)
                    written += 1
        if written:
            self._end_transaction(Position(lsn, self._position.visible, self._position.snapshot_lsn))
            self.last_commit_us = transaction.commit_us
        # Without a message there is no change of these tables up to `end`; else the database would keep its log
        # for as long as only other tables change.
        self._confirm(lsn if has_messages else max(lsn, end))
        return written

    def _confirm(self, lsn: int) -> None:
        if lsn > self._confirmed_lsn:
            self._database.confirm(lsn)
            self._confirmed_lsn = lsn

    def _begin(self, found: Position | None, on_snapshot: Callable[[int], None]) -> Position:
        """The position to start from, of the topics or of a new snapshot."""
        slot, again = self._database.slot(), self._options.snapshot_again
        if slot is not None and slot.wal_status == "lost":
            raise CaptureError(
                f"the database has dropped the log that the slot {self._options.name} needs: run"
                " `odradek capture drop`, and then `odradek capture run` with --snapshot-again"
            )
        if slot is None and found is not None and not again:
            raise CaptureError(
                f"the topics have a position, and the database has no slot {self._options.name}: changes in between are"
                " lost; --snapshot-again reads all rows again, and deletions in between are missed"
            )
        if slot is None:
            self._database.create_slot()
        if found is not None and not again:
            return found
        return self._write_snapshot(on_snapshot)

    def _write_snapshot(self, on_snapshot: Callable[[int], None]) -> Position:
        with self._no_open_transaction(), self._database.snapshot(self._options.tables) as snapshot:
            self._producer.begin_transaction()
            began_s, count = time.monotonic(), 0
            for relation, row in snapshot.rows:
                for record in self._format.read(relation, row, snapshot.lsn, snapshot.time_us):
                    self._produce(self._options.topic_of(relation.name), record)
                count += 1
                if time.monotonic() - began_s > SNAPSHOT_TRANSACTION_S:
                    self._commit()
                    on_snapshot(count)
                    self._producer.begin_transaction()
                    began_s = time.monotonic()
            position = Position(0, snapshot.visible, snapshot.lsn)
            self._end_transaction(position)
            on_snapshot(count)
            return position

    @contextmanager
    def _no_open_transaction(self) -> Iterator[None]:
        """Abort Kafka's transaction after an error: `read_committed` consumers would wait for its time-out."""
        try:
            yield
        except BaseException:  # Ctrl-C included
            # There may be none, or another process has fenced this one; the first error is the one to report.
            with suppress(KafkaException):
                self._producer.abort_transaction(TIMEOUT_S)
            raise

    def _write(self, message: Change | Truncate, transaction: Begin) -> None:
        if isinstance(message, Change):
            for record in self._format.changed(message, transaction):
                self._produce(self._options.topic_of(message.relation.name), record)
            return
        for relation in message.relations:
            self._write_truncate(relation, transaction)

    def _write_truncate(self, relation: Relation, transaction: Begin) -> None:
        if relation.name not in self._options.tables:
            return
        records = list(self._format.truncated(relation, transaction))
        if not records and not self._options.skip_truncate:
            raise CaptureError(
                f"{relation.name} was truncated, and records of rows cannot say so: delete its topic and run"
                " `odradek capture drop` to start over, or run with --on-truncate skip"
            )
        for record in records:
            self._produce(self._options.topic_of(relation.name), record)

    def _produce(self, topic: str, record: Record) -> None:
        """Give one record to the producer; waits while its queue is full."""
        while True:
            try:
                self._producer.produce(topic, record.value, record.key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _end_transaction(self, position: Position) -> None:
        value = {"lsn": position.lsn, "visible": position.visible, "snapshot_lsn": position.snapshot_lsn}
        self._produce(self._options.positions_topic, Record(self._options.name, json.dumps(value)))
        self._commit()
        self._position = position

    def _commit(self) -> None:
        self._producer.flush()  # may take long after a large transaction; a record that is not stored fails the commit
        self._producer.commit_transaction(TIMEOUT_S)


def create_topics(clients: Mapping[str, Any], options: Options) -> None:
    """Create the topics that do not exist, with the default replication factor. Raises KafkaException."""
    admin = AdminClient(dict(clients))
    config = COMPACTED if options.compacted else {}
    topics = [NewTopic(options.topic_of(table), options.partitions, config=config) for table in options.tables]
    topics.append(NewTopic(options.positions_topic, 1, config=COMPACTED))
    for future in admin.create_topics(topics, operation_timeout=TIMEOUT_S).values():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def read_position(clients: Mapping[str, Any], options: Options) -> Position | None:
    """The last committed position; None if nothing was captured. Raises KafkaException."""
    settings = {"enable.partition.eof": True, "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**clients, **settings, "group.id": "odradek-capture-without-a-group"})
    found: Position | None = None
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(options.positions_topic, 0, OFFSET_BEGINNING)])
        while True:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found = Position(**json.loads(message.value() or b"{}"))
                deadline = time.monotonic() + TIMEOUT_S
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
