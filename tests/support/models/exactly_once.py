"""The check of exactly-once copies: numbered records for each key, and the copy as read_committed sees it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from odradek.coordinator.hashing import partition_for
from odradek.testing.processes import ProcessCluster
from tests.support.clients.confluent import admin, produce_all, read_all, read_committed

KEYS = 50
STATE_PARTITIONS = 3
# The group of the copiers, and their transactional ids.
GROUP = "copiers"
COPIER = "copier-%d"


class CopyCluster:
    """Three brokers with `source` and `copy` on all of them; those that a copy hangs on are killed in turn."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap_servers
        self._roles = itertools.cycle(
            [
                ("copy", 0),
                ("__transaction_state", partition_for(COPIER % 0, STATE_PARTITIONS)),
                ("__consumer_offsets", partition_for(GROUP, STATE_PARTITIONS)),
            ]
        )

    def kill_next(self) -> None:
        """kill -9 of the leader of the next of: a partition of the copy, a copier's coordinator, the group's."""
        topic, number = next(self._roles)
        described = admin(self.bootstrap).list_topics(timeout=30).topics.get(topic)
        leader = described.partitions[number].leader if described is not None and described.partitions else -1
        victim = self.cluster.brokers[max(0, leader - 1)]
        victim.kill()
        time.sleep(1)
        victim.start()


@contextmanager
def copy_cluster(folder: Path, partitions: int) -> Iterator[CopyCluster]:
    """Three brokers, everything with three replicas of which two must be in sync."""
    settings = {
        "offsets.topic.num.partitions": STATE_PARTITIONS,
        "transaction.state.log.num.partitions": STATE_PARTITIONS,
    }
    with ProcessCluster(folder, brokers=3, settings=settings) as cluster:
        topics = [NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"}) for name in ("source", "copy")]
        client = admin(cluster.bootstrap_servers)
        for created in client.create_topics(topics).values():
            created.result(90)
        yield CopyCluster(cluster)


def fill_source(bootstrap: str, topic: str, partitions: int, count: int, start: int = 0) -> dict[int, list[bytes]]:
    """Write `count` records, numbered in each key; returns the values of each partition in their order.

    Args:
        start: how many were written before.
    """
    records = [
        (b"key-%d" % (number % KEYS), b"%d:%d" % (number % KEYS, number // KEYS))
        for number in range(start, start + count)
    ]
    delivered = produce_all(bootstrap, topic, records, enable_idempotence=True)
    return by_partition(delivered, partitions)


def committed_values(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """The values of each partition in their order, up to the last stable offset."""
    return by_partition(read_all(bootstrap, topic, partitions, isolation_level="read_committed"), partitions)


def ended_values(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """The same once the transactions that are in the topic now have ended."""
    return by_partition(read_committed(bootstrap, topic, partitions), partitions)


def by_partition(messages: Sequence[Any], partitions: int) -> dict[int, list[bytes]]:
    """Sorted by offset, as the order of delivery reports is not that of the partition."""
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(partitions)}
    for message in messages:
        found[message.partition()].append((message.offset(), message.value()))
    return {number: [value for _, value in sorted(each)] for number, each in found.items()}
