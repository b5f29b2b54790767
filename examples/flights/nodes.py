"""The cluster of the demo: three nodes in processes of their own, one of which is killed and started again."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient

from odradek.testing.processes import NodeFailedError, ProcessCluster

BROKERS = 3
COPIES = 3
# What a record is acknowledged by at least: one node of three may be away.
IN_SYNC = 2
IN_SYNC_TIMEOUT_S = 60.0
READ_BYTES = 1 << 20
SETTINGS: dict[str, object] = {
    "min.insync.replicas": IN_SYNC,
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
}


class Nodes:
    """`odradek broker` three times, each a broker and a voter of the quorum; ports stay the same over restarts.

    Args:
        directory: holds each node's data and what it prints.
        port: of the first broker, the others follow; free ones by default.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self._cluster = ProcessCluster(directory, brokers=BROKERS, settings=SETTINGS, first_port=port or 0)
        self.killed = 0

    @property
    def bootstrap(self) -> str:
        """All three, as a client would list them."""
        return self._cluster.bootstrap_servers

    def start(self) -> float:
        """Start all and wait until they serve; returns the seconds that took. Raises SystemExit."""
        began = time.monotonic()
        try:
            self._cluster.start()
        except NodeFailedError as error:
            raise SystemExit(str(error)) from None
        return time.monotonic() - began

    def leaders(self, topic: str) -> dict[int, int]:
        """Of each partition; -1 where there is none. Raises KafkaException where no broker answers."""
        found = self._admin().list_topics(topic, timeout=30).topics[topic]
        return {partition_id: partition.leader for partition_id, partition in found.partitions.items()}

    def kill_leader(self, topic: str) -> tuple[int, list[int]]:
        """kill -9 of the node that leads most partitions of a topic; returns it, and those partitions."""
        leaders = self.leaders(topic)
        node_id = Counter(leaders.values()).most_common(1)[0][0]
        self.killed = node_id
        self._cluster[node_id].kill()
        return node_id, sorted(partition_id for partition_id, leader in leaders.items() if leader == node_id)

    def restart(self) -> float:
        """Start the killed node over the same files; returns the seconds until it serves. Raises SystemExit."""
        began = time.monotonic()
        try:
            self._cluster[self.killed].start()
        except NodeFailedError as error:
            raise SystemExit(str(error)) from None
        return time.monotonic() - began

    def await_in_sync(self, topic: str) -> bool:
        """Wait until every replica of a topic is in sync; whether that came to be."""
        deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
        while time.monotonic() < deadline:
            partitions = self._admin().list_topics(topic, timeout=30).topics[topic].partitions.values()
            if all(len(partition.isrs) == COPIES for partition in partitions):
                return True
            time.sleep(0.2)
        return False

    def copies(self, topic: str) -> list[dict[str, str]]:
        """For each node, the checksum of what its files hold of each partition; they must agree, byte by byte."""
        return [
            {folder.name: _checksum(folder) for folder in sorted(node.plan.data_dir.glob(f"{topic}-[0-9]*"))}
            for node in self._cluster.brokers
        ]

    def stop(self) -> None:
        """A clean stop of all; harmless where they do not run."""
        self._cluster.stop()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})


def _checksum(folder: Path) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(folder):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            while piece := file.read(READ_BYTES):
                yield piece
