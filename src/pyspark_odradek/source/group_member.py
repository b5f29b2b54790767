"""The query as a member of its consumer group, so that every tool that shows groups shows it.

The member reads nothing, and only Spark's checkpoint determines the position: the member shows that the query reads the
topics, and can commit offsets in a group with members. librdkafka sends its heartbeats, in a thread that polls its
events; a dead driver is removed after SESSION_TIMEOUT_MS. The group's assignor assigns the partitions, so a query with
`assign` shows all partitions of its topics, and two queries of one group share them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from pyspark_odradek.client.offsets import Positions
from pyspark_odradek.errors import OptionError

log = logging.getLogger("pyspark_odradek")

SESSION_TIMEOUT_MS = 10_000
POLL_S = 0.2
CLOSE_PATIENCE_S = 5.0
METADATA = "odradek-spark"


class GroupMember:
    """Joins in the background; only one thread calls librdkafka's consumer.

    Args:
        settings: of the client, by the names of the Java client or of librdkafka.
        group_id: the option groupId.
    """

    def __init__(self, settings: Mapping[str, str], group_id: str) -> None:
        from pyspark_odradek.client.librdkafka import client_config

        config = {
            **client_config(settings),
            "group.id": group_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
        }
        try:
            self._consumer = Consumer(config, logger=log)
        except KafkaException as error:
            raise OptionError(f"kafka.*: {error.args[0].str()}") from None
        self._group_id = group_id
        self._done: Positions = {}
        self._committed: Positions = {}
        self._topics: list[str] = []
        self._is_assigned = False
        self._warned_of = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odradek-group", daemon=True)
        self._thread.start()

    def report(self, done: Positions) -> None:
        """Say how far the query is; it is committed by and by, the newest word at the latest by `close`."""
        self._done = done

    def close(self) -> None:
        """Commit the reported offsets, and leave the group, without a wait for an unavailable cluster."""
        self._ended.set()
        self._thread.join(CLOSE_PATIENCE_S)
        if self._thread.is_alive():
            log.warning(
                "group %s was not left in %g s: the member expires with its session",
                self._group_id,
                CLOSE_PATIENCE_S,
            )

    def _run(self) -> None:
        while not self._ended.is_set():
            self._follow()
            message = self._consumer.poll(POLL_S)
            error = message.error() if message is not None else None
            if error is not None:
                log.info("the group %s: %s", self._group_id, error.str())
            self._commit()
        self._commit()
        self._consumer.close()

    def _follow(self) -> None:
        topics = sorted({topic for topic, _ in self._done})
        if topics and topics != self._topics:
            self._topics = topics
            self._consumer.subscribe(topics, on_assign=self._assign, on_revoke=self._revoke)

    def _commit(self) -> None:
        """Commit the progress; after an error the next round retries, and a new reason is logged as a warning."""
        done = self._done
        if not self._is_assigned or done == self._committed:
            return
        offsets = [TopicPartition(*partition, offset, METADATA) for partition, offset in sorted(done.items())]
        try:
            found = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._warn(error.args[0].str())
            return
        refused = [f"{each.topic}-{each.partition}: {each.error}" for each in found or () if each.error is not None]
        if refused:
            self._warn(refused[0])
            return
        self._committed = done

    def _warn(self, why: str) -> None:
        if why != self._warned_of:
            log.warning("progress is not committed for group %s: %s", self._group_id, why)
        self._warned_of = why

    def _assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Accept the assignment, and fetch nothing of it."""
        consumer.assign([TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions])
        consumer.pause(partitions)
        self._is_assigned = True

    def _revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._is_assigned = False
