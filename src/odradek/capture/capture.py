"""A capture: changes of the database in Kafka transactions, each once, with the position that they reach.

The position in the database's log is a record of a topic of its own, in the same transaction as the changes. The slot
is confirmed afterwards, and never further: a process that was fenced cannot commit a position, so it confirms nothing
that its successor has not written. After a kill in between, the slot has changes again, and the stored position
identifies them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.capture.database import CaptureError, Database, Snapshot, Table
from odradek.capture.formats import Format, Record, marked
from odradek.capture.pgoutput import Begin, Change, Commit, Decoder, Message, MissingValueError, Relation, Truncate
from odradek.capture.positions import Position, read_position
from odradek.capture.tables import CapturedTables
from odradek.client.transactional_producer import TopicCreationError, TransactionalProducer, create_missing_topics

CHANGES_AT_ONCE = 500
PAUSE_S = 0.1
# A position is written for log without changes of these tables after so much of it, or so long.
IDLE_BYTES = 1 << 20
IDLE_S = 10.0
# A transaction of the database is one of Kafka's, however large. Brokers allow it a quarter of an hour by default.
TRANSACTION_MS = 900_000
# A snapshot is several transactions of this length: a kill repeats all of it.
SNAPSHOT_TRANSACTION_S = 60.0
QUEUE = 10_000  # records that wait in memory for the broker; a transaction may have any number
QUEUE_KBYTES = 128 << 10
# The greatest record that the producer takes. Brokers take 1 MB by default (`max.message.bytes`).
RECORD_BYTES = 64 << 20
COMPACTED = {"cleanup.policy": "compact"}
START_OVER = "run `odradek capture drop`, and then `odradek capture run` with --snapshot-again"
ANY_PARTITION = -1  # the key decides


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a capture.

    Attributes:
        name: of the slot, the publication, and in the transactional id.
        tables: as schema.table, each with a primary key.
        topic_prefix: topics are called prefix.schema.table, with `_` for characters that topics cannot have.
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
        return f"{self.topic_prefix}.{re.sub('[^A-Za-z0-9._-]', '_', table)}"

    @property
    def positions_topic(self) -> str:
        return f"odradek-capture.{self.name}"


class Capture:
    """The one process that captures under a name; a second one that starts fences the first.

    Args:
        database: connected; the capture publishes the tables and creates the slot.
        clients: settings of librdkafka that reach the cluster.
        make_format: gives the format from the columns of the primary key of each table.
        on_snapshot: is called with the number of rows after each transaction of a snapshot.

    Raises:
        CaptureError: a table cannot be captured, the slot is lost, there is a position and no slot, or the topics have
            records of another format.
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
        tables = database.tables(options.tables)  # before a capture that runs is fenced
        self._tables = CapturedTables({table.oid: name for name, table in tables.items()}, database.domains())
        self._format = make_format({name: table.key for name, table in tables.items()})
        create_topics(clients, options)
        queue = {"queue.buffering.max.messages": QUEUE, "queue.buffering.max.kbytes": QUEUE_KBYTES}
        self._producer = TransactionalProducer(
            {"message.max.bytes": RECORD_BYTES, **clients, **queue},
            f"odradek-capture-{options.name}",
            timeout_ms=TRANSACTION_MS,
        )
        self._largest = "", Record(None, "")  # of this transaction, with its topic
        self._confirmed_lsn = 0
        self._read_lsn = 0
        self._positioned_s = time.monotonic()
        keys = {options.topic_of(name): table.key for name, table in tables.items()}
        self._position = Position(format=self._format.name, keys=keys)
        try:
            self._begin(read_position(clients, options.positions_topic), tables, on_snapshot)
        except BaseException:  # Ctrl-C included
            self.close()
            raise

    def close(self) -> None:
        """Disconnect from the cluster; the caller disconnects from the database."""
        self._producer.close()

    def step(self) -> int:
        """Write the next transactions of the database; returns the number of changes, 0 if there are none.

        Changes are sent as they are read, so a transaction of millions of rows is never in memory as a whole.
        """
        end = self._database.flushed_lsn()
        if end <= self._read_lsn:  # a look would cost the database work, and lines of its own log
            return 0
        lsn, written, has_messages, is_new = self._position.lsn, 0, False, False
        transaction = Begin(0, 0, 0)
        with self._no_open_transaction():
            with self._database.changes(limit=CHANGES_AT_ONCE) as messages:
                for message in self._decoded(messages):
                    has_messages = True
                    if isinstance(message, Begin):
                        transaction, is_new = message, not self._position.has(message)
                    elif isinstance(message, Commit):
                        lsn = max(lsn, message.end_lsn)
                    elif is_new and (ours := self._tables.ours(message)) is not None:
                        if not written:
                            self._producer.begin()
                        self._write(ours, transaction)
                        written += 1
            # Without a message there is no change of these tables up to `end`; else the database would keep its log
            # for as long as only other tables change.
            self._read_lsn = lsn if has_messages else max(lsn, end)
            self._store_position(is_open=bool(written), has_messages=has_messages)
        if written:
            self.last_commit_us = transaction.commit_us
        if self._position.lsn > self._confirmed_lsn:
            self._database.confirm(self._position.lsn)
            self._confirmed_lsn = self._position.lsn
        return written

    def catch_up(self, end: int) -> int:
        """Write all that the database has committed before this position of its log; returns the number of changes."""
        written = 0
        while self._read_lsn < end:
            written += self.step()
        return written

    def _store_position(self, *, is_open: bool, has_messages: bool) -> None:
        """Commit the position in the transaction of the changes; without changes only after IDLE_BYTES or IDLE_S."""
        beyond = self._read_lsn - self._position.lsn
        if not is_open:
            is_due = beyond >= IDLE_BYTES or time.monotonic() - self._positioned_s >= IDLE_S
            if not beyond or not (has_messages or is_due):
                return
            self._producer.begin()
        self._end_transaction(replace(self._position, lsn=self._read_lsn))

    def _begin(self, found: Position | None, tables: Mapping[str, Table], on_snapshot: Callable[[int], None]) -> None:
        """Continue at the position of the topics, after a snapshot of the tables whose rows they lack."""
        slot = self._database.slot()
        if slot is not None and slot.wal_status == "lost":
            raise CaptureError(
                f"the database has dropped the log that the slot {self._options.name} needs: {START_OVER}"
            )
        if found is not None:
            self._check(found, has_slot=slot is not None)
            start = self._position
            if slot is not None:
                keys = {**found.keys, **start.keys}
                start = replace(found, tables=self._complete(found, tables), keys=keys)
            self._store_start(found, start)
        self._database.publish(tables)
        if slot is None:
            self._database.create_slot()
        missing = [name for name in tables if self._options.topic_of(name) not in self._position.tables]
        if missing:
            self._write_snapshot(missing, tables, on_snapshot, is_empty=found is None or slot is None)

    def _check(self, found: Position, *, has_slot: bool) -> None:
        """Raises CaptureError if the capture cannot continue from this position."""
        if not has_slot and not self._options.snapshot_again:
            raise CaptureError(
                f"the topics have a position, and the database has no slot {self._options.name}: changes in between are"
                " lost; --snapshot-again reads all rows again, and deletions in between are missed"
            )
        if has_slot and found.lsn > self._database.flushed_lsn():
            raise CaptureError(
                "the database's log ends before the position of the topics: it was restored, or a standby without its"
                f" last transactions has taken over, and the topics have changes that it has not; {START_OVER}"
            )
        if found.format != self._format.name:
            raise CaptureError(
                f"the topics have records of the format {found.format}, not {self._format.name}: choose another --name"
                " and --topic-prefix"
            )
        for topic, key in self._position.keys.items():
            before = found.keys.get(topic, key)
            if before != key:
                raise CaptureError(
                    f"{topic} has records with the key ({', '.join(before)}), and the primary key is now"
                    f" ({', '.join(key)}): choose another --topic-prefix, which begins with a snapshot"
                )

    def _complete(self, found: Position, tables: Mapping[str, Table]) -> dict[str, int]:
        """The oid of each table whose rows and changes up to this position are all in its topic, by topic."""
        if self._options.snapshot_again:
            return {}
        published = self._database.published()
        oids = {self._options.topic_of(name): table.oid for name, table in tables.items() if name in published}
        return {topic: oid for topic, oid in oids.items() if found.tables.get(topic) == oid}

    def _store_start(self, found: Position, start: Position) -> None:
        """Store the tables without a snapshot before slot and publication change: a crash may happen in between."""
        self._position = found
        if start != found:
            with self._no_open_transaction():
                self._producer.begin()
                self._end_transaction(start)

    def _write_snapshot(
        self, missing: list[str], tables: Mapping[str, Table], on_snapshot: Callable[[int], None], *, is_empty: bool
    ) -> None:
        """Write all rows of these tables.

        Rows of an earlier snapshot may have been deleted since, and are then not in this one. So all changes that this
        snapshot contains are written before its rows, unless the topics are empty.
        """
        if not is_empty:
            self.catch_up(self._database.flushed_lsn())
        with self._no_open_transaction(), self._database.snapshot(missing) as snapshot:
            self._producer.begin()
            if not is_empty:
                self._write_changes_before(snapshot)
            topics = {self._options.topic_of(name): tables[name].oid for name in missing}
            complete = {topic: oid for topic, oid in self._position.tables.items() if topic not in topics}
            position = replace(self._position, visible=snapshot.visible, snapshot_lsn=snapshot.lsn, tables=complete)
            began_s, count = time.monotonic(), 0
            for relation, row, marker in marked(snapshot.rows):
                for record in self._format.read(relation, row, snapshot.lsn, snapshot.time_us, marker):
                    self._produce(self._options.topic_of(relation.name), record)
                count += 1
                if time.monotonic() - began_s > SNAPSHOT_TRANSACTION_S:
                    self._end_transaction(position)
                    on_snapshot(count)
                    self._producer.begin()
                    began_s = time.monotonic()
            self._end_transaction(replace(position, tables={**complete, **topics}))
            on_snapshot(count)

    def _write_changes_before(self, snapshot: Snapshot) -> None:
        """Write the transactions that the snapshot contains and the topics lack.

        A transaction that the snapshot does not contain may commit between them, and is written after the snapshot. It
        shares no row with the transactions that are written here after its commit, because of row locks.
        """
        seen = replace(self._position, visible=snapshot.visible, snapshot_lsn=snapshot.lsn)
        self._database.flush()
        transaction, is_new = Begin(0, 0, 0), False
        with self._database.changes(upto_lsn=snapshot.lsn) as messages:
            for message in self._decoded(messages):
                if isinstance(message, Begin):
                    transaction, is_new = message, seen.has(message) and not self._position.has(message)
                elif is_new and (ours := self._tables.ours(message)) is not None:
                    self._write(ours, transaction)

    @contextmanager
    def _no_open_transaction(self) -> Iterator[None]:
        """Abort Kafka's transaction after an error; the error for a record that is too large names its row."""
        try:
            with self._producer.aborting():
                yield
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise _too_large(*self._largest) from None
            raise

    def _decoded(self, messages: Iterator[tuple[bytes, int]]) -> Iterator[Message | None]:
        try:
            yield from starmap(self._decoder.decode, messages)
        except MissingValueError as error:
            raise CaptureError(f"{error}: the table needs REPLICA IDENTITY FULL all the time; {START_OVER}") from None

    def _write(self, message: Change | Truncate, transaction: Begin) -> None:
        if isinstance(message, Change):
            topic = self._options.topic_of(message.relation.name)
            try:
                for record in self._format.changed(message, transaction):
                    self._produce(topic, record)
            except KeyError as error:
                raise CaptureError(
                    f"a change of {message.relation.name} has no column {error}, which was in its primary key, or is"
                    f" now: choose another --topic-prefix, or {START_OVER}"
                ) from None
            return
        for relation in message.relations:
            self._write_truncate(message, relation, transaction)

    def _write_truncate(self, message: Truncate, relation: Relation, transaction: Begin) -> None:
        records = list(self._format.truncated(message, relation, transaction))
        if not records and not self._options.skip_truncate:
            raise CaptureError(
                f"{relation.name} was truncated, and records of rows cannot say so: delete its topic and run"
                " `odradek capture drop` to start over, or run with --on-truncate skip"
            )
        for record in records:
            self._produce(self._options.topic_of(relation.name), record)

    def _produce(self, topic: str, record: Record, partition: int = ANY_PARTITION) -> None:
        if len(record.value or "") > len(self._largest[1].value or ""):
            self._largest = topic, record
        self._producer.produce(topic, record.value, record.key, partition=partition, headers=list(record.headers))

    def _end_transaction(self, position: Position) -> None:
        self._produce(self._options.positions_topic, Record(self._options.name, position.to_json()), 0)
        self._producer.commit()
        self._largest = "", Record(None, "")
        self._position = position
        self._positioned_s = time.monotonic()


def _too_large(topic: str, record: Record) -> CaptureError:
    size = len((record.value or "").encode())
    return CaptureError(
        f"the row with the key {(record.key or '')[:100]} is a record of {size:,} bytes, more than {topic} takes: raise"
        f" max.message.bytes, as by `odradek configs alter --topic {topic} --add-config max.message.bytes={2 * size}`"
    )


def create_topics(clients: Mapping[str, Any], options: Options) -> None:
    """Create the topics that do not exist, with the default replication factor. Raises KafkaException, CaptureError."""
    config = COMPACTED if options.compacted else {}
    topics = [NewTopic(options.topic_of(table), options.partitions, config=config) for table in options.tables]
    topics.append(NewTopic(options.positions_topic, 1, config=COMPACTED))
    try:
        create_missing_topics(AdminClient(dict(clients)), topics)
    except TopicCreationError as error:
        raise CaptureError(str(error)) from None
