"""The position in the database's log that the topics of a capture have reached, in the topic `odradek-capture.NAME`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from odradek.capture.database import Visible
from odradek.capture.pgoutput import Begin
from odradek.client.transactional_producer import TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Position:
    """The position of the topics in the database's log; by default that of empty topics.

    Attributes:
        lsn: all transactions that committed before it are in the topics.
            visible: the last started snapshot, for `Visible.parse`. All rows in the topics are in it, except those of
                transactions that are not in it either.
            snapshot_lsn: transactions that committed before it may be in the snapshot.
            tables: topic -> oid of the table, for tables with all rows in the topic; not while a snapshot of the table
                is incomplete.
            format: the format of the records; empty if there are none.
            keys: topic -> columns of the table's primary key, for topics that have had records.
    """

    lsn: int = 0
    visible: str = "0:0:"
    snapshot_lsn: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    format: str = ""
    keys: Mapping[str, list[str]] = field(default_factory=dict)

    def has(self, transaction: Begin) -> bool:
        """Whether the topics have the changes of a transaction."""
        if transaction.commit_lsn < self.lsn:
            return True
        return transaction.commit_lsn < self.snapshot_lsn and Visible.parse(self.visible).has(transaction.xid)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def read_position(clients: Mapping[str, Any], topic: str) -> Position | None:
    """The last committed position; None if nothing was captured. Raises KafkaException."""
    settings: dict[str, Any] = {"enable.partition.eof": True, "isolation.level": "read_committed"}
    # The end of a short topic is reported after one fetch.
    settings |= {"enable.auto.commit": False, "fetch.wait.max.ms": 10}
    # librdkafka looks up the group, which is not used: an error about it is passed over.
    consumer = Consumer({**clients, **settings, "group.id": "odradek-capture-without-a-group"})
    found: Position | None = None
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
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
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(error)
    finally:
        consumer.close()
