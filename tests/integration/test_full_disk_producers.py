"""One of three nodes has a full disk: an idempotent producer waits, keeps its epoch, and nothing is there twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.record.reader import read_batches, read_records
from tests.support.clients.api_calls import Calls, bytes_of, fetch_topic
from tests.support.disks.file_system import Ballast, small_tmpfs
from tests.support.nodes.cluster import Cluster, await_in_sync, topic_at
from tests.support.waiting import PATIENCE_S, eventually

MIB = 1 << 20
TOPIC = "kept"
PARTITIONS = 3
UNDER_WAY = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes, each with a file system of its own; a follower that has no space leaves the in-sync set soon."""
    with ExitStack() as stack:
        for number in (1, 2, 3):
            stack.enter_context(small_tmpfs(tmp_path / f"node-{number}", 64 * MIB))
        made = Cluster(tmp_path, brokers=3, settings={"replica.lag.time.max.ms": 2000})
        stack.callback(made.kill)
        yield made.start()


class Load:
    """librdkafka's idempotent producer, which sends a batch for each record that comes alone, answered or not."""

    def __init__(self, cluster: Cluster) -> None:
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self._unanswered: dict[int, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
                "statistics.interval.ms": 50,
                "stats_cb": self._counted,
            }
        )

    def write(self, count: int) -> None:
        """Produce `count` records to each partition."""
        for _ in range(count):
            for partition, values in enumerate(self.sent):
                values.append(b"%06d" % len(values) + bytes(1000))
                self._producer.produce(TOPIC, values[-1], partition=partition, on_delivery=self._delivered)
        self._producer.poll(0.05)

    def unanswered(self, node_id: int) -> int:
        """The number of requests that a node has not answered yet."""
        self._producer.poll(0.05)
        return self._unanswered.get(node_id, 0)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0, "some were never answered"
        assert not self.errors, self.errors[:3]

    def _counted(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self._unanswered = {each["nodeid"]: each["waitresp_cnt"] for each in brokers}

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))


def stored(cluster: Cluster, partition: int) -> tuple[list[bytes | None], set[int]]:
    """All values of a partition, and the epochs of its producer."""
    leader = topic_at(cluster.brokers[0], TOPIC).partitions[partition].leader_id
    values: list[bytes | None] = []
    epochs = set()
    with Calls(cluster[leader].plan.port) as calls:
        end, offset = calls.list_end(TOPIC, partition), 0
        while offset < end:
            answer = calls.fetch(fetch_topic(TOPIC, {partition: offset}), version=12, max_bytes=MIB)
            data = bytes_of(answer.responses[0].partitions[0].records)
            for position, header in read_batches(data):
                epochs.add(header.producer_epoch)
                values += [each.value for each in read_records(data[position : position + header.size_bytes], header)]
                offset = header.last_offset + 1
    return values, epochs


def test_an_idempotent_producer_survives_a_full_disk_without_duplicates(cluster: Cluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
    await_in_sync(cluster.brokers, TOPIC, partitions=PARTITIONS, copies=3)
    load = Load(cluster)
    load.write(10)
    load.flush()
    full = next(node for node in cluster.brokers if node.plan.node_id != cluster.active_controller())
    node_id = full.plan.node_id
    ballast = Ballast(tmp_path / f"node-{node_id}")
    # A batch, and others of the same partition behind it, are in flight when the disk is full. Meanwhile no other
    # leader can acknowledge its records.
    full.pause()
    eventually(lambda: load.write(1) or load.unanswered(node_id) >= UNDER_WAY)  # type: ignore[func-returns-value]  # it returns None, which is false
    ballast.fill()
    full.resume()
    eventually(lambda: load.unanswered(node_id) < UNDER_WAY)
    ballast.release()
    load.flush()
    for partition, sent in enumerate(load.sent):
        values, epochs = eventually(lambda partition=partition, sent=sent: _all(stored(cluster, partition), len(sent)))
        assert values == sent, "each once, in order"
        assert epochs == {0}, "nothing was sent again under another epoch"


def _all(found: tuple[list[bytes | None], set[int]], count: int) -> Any:
    return found if len(found[0]) >= count else None
