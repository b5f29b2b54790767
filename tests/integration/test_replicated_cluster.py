"""Three nodes in processes of their own, under kill -9 and SIGSTOP: acknowledged records are there, in order, once."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from odradek.record.batch import HEADER_BYTES
from odradek.record.reader import read_batches
from odradek.testing.processes import NodeProcess, ProcessCluster
from tests.support.nodes.cluster import topic_at
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "kept"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    made = ProcessCluster(tmp_path, brokers=3, settings={"offsets.topic.num.partitions": 1})
    try:
        made.start()
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        configs = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(TOPIC, 1, 3, config=configs)])[TOPIC].result(PATIENCE_S)
        yield made
    finally:
        made.kill()


def standing(cluster: ProcessCluster) -> tuple[int, list[int]]:
    """(leader, in-sync replicas) as the nodes that run tell it; (-1, []) while none can."""
    running = ",".join(node.bootstrap for node in cluster.brokers if node.running and not node.paused)
    admin = AdminClient({"bootstrap.servers": running, "log_level": 0})
    try:
        found = admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions[0]
    except Exception:
        return -1, []
    return found.leader, sorted(found.isrs)


def leader_of(cluster: ProcessCluster) -> int:
    return int(eventually(lambda: max(standing(cluster)[0], 0), "somebody leads"))


def in_sync(cluster: ProcessCluster, *node_ids: int) -> None:
    """Wait until every broker has this in-sync set: one answer alone may be older than the last change."""
    running = [node for node in cluster.brokers if node.running and not node.paused]
    wanted = sorted(node_ids)
    eventually(lambda: all(isr_at(node) == wanted for node in running), f"{node_ids} are in sync")


def isr_at(node: NodeProcess) -> list[int]:
    try:
        return sorted(topic_at(node, TOPIC).partitions[0].isr_nodes)
    except (OSError, IndexError):
        return []


def log_bytes(node: NodeProcess) -> bytes:
    directory = node.plan.data_dir / f"{TOPIC}-0"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def all_alike(cluster: ProcessCluster) -> None:
    """The replicas have the same bytes, once they had time to."""
    in_sync(cluster, 1, 2, 3)
    eventually(lambda: len({log_bytes(node) for node in cluster.brokers}) == 1, "all have the same bytes")


class Load:
    """An idempotent producer that waits for all in-sync replicas."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[str] = []
        self.count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )

    def write(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._producer.produce(TOPIC, b"%d" % self.count, partition=0, on_delivery=self._delivered)
            self.count += 1
            self._producer.poll(0.002)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0, "some were never answered"
        assert not self.errors, self.errors[:3]
        assert len(self.acknowledged) == self.count

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append(message.value())


def everything(cluster: ProcessCluster, count: int, **config: str) -> list[bytes]:
    """All values, `count` at least, as a consumer reads them; `config` is more of its configuration."""
    own = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 0}
    consumer = Consumer({**own, "enable.auto.commit": False, **config})
    try:
        # A leader that has just begun may not know yet that all of it was committed.
        end = eventually(
            lambda: (end := _end_of(consumer)) >= count and end, lambda: _why_not_committed(cluster, consumer, count)
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < end:
            assert time.monotonic() < deadline, f"{len(values)} of {end} records came"
            values += [message.value() or b"" for message in consumer.consume(1000, 1.0) if message.error() is None]
        return values
    finally:
        consumer.close()


def _why_not_committed(cluster: ProcessCluster, consumer: Consumer, count: int) -> str:
    """The state of the cluster: a lost record, a watermark that lags or a client without an answer."""
    try:
        ends: object = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)
    except KafkaException as error:
        ends = error
    logs = {node.node_id: (isr_at(node), len(log_bytes(node))) for node in cluster.brokers if node.running}
    return f"{count} records are committed: offsets {ends}, (leader, ISR) {standing(cluster)}, (ISR, bytes) {logs}"


def _end_of(consumer: Consumer) -> int:
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)[1])
    except Exception:
        return 0


def test_leaders_are_killed_under_load(cluster: ProcessCluster) -> None:
    load = Load(cluster)
    load.write(1)
    for _ in range(2):
        leader = leader_of(cluster)
        cluster[leader].kill()
        load.write(2)
        eventually(lambda gone=leader: standing(cluster)[0] not in (-1, gone), "another one leads")
        cluster[leader].start()
        load.write(1)
        in_sync(cluster, 1, 2, 3)
    load.flush()
    assert everything(cluster, load.count) == [b"%d" % number for number in range(load.count)]
    all_alike(cluster)


def test_all_are_killed_at_once(cluster: ProcessCluster) -> None:
    load = Load(cluster)
    load.write(1)
    in_sync(cluster, 1, 2, 3)
    cluster.kill()
    for node in cluster.brokers:
        node.launch()
    for node in cluster.brokers:
        node.await_ready()
    load.write(1)
    load.flush()
    assert everything(cluster, load.count) == [b"%d" % number for number in range(load.count)]
    all_alike(cluster)


def test_records_that_only_a_dead_leader_had_are_truncated(cluster: ProcessCluster) -> None:
    load = Load(cluster)
    load.write(0.5)
    load.flush()
    in_sync(cluster, 1, 2, 3)
    leader = leader_of(cluster)
    others = [node for node in cluster.brokers if node.node_id != leader]
    for node in others:
        node.pause()
    alone = Producer({"bootstrap.servers": cluster[leader].bootstrap, "acks": 1, "linger.ms": 0, "log_level": 0})
    # The first of these answers the Fetch that waited when its follower was stopped; no client reads the rest.
    for number in range(20):
        alone.produce(TOPIC, b"alone %d" % number, partition=0)
        assert alone.flush(PATIENCE_S) == 0
    tail = log_bytes(cluster[leader])
    assert b"alone 19" in tail
    cluster[leader].kill()
    for node in others:
        node.resume()
    eventually(lambda: standing(cluster)[0] not in (-1, leader), "another one leads")
    load.write(1)
    load.flush()
    cluster[leader].start()
    all_alike(cluster)
    assert b"alone 19" not in log_bytes(cluster[leader])
    assert "follower's log is cut" in cluster[leader].log_text()
    values = [value for value in everything(cluster, load.count) if not value.startswith(b"alone")]
    assert values == [b"%d" % number for number in range(load.count)]


def test_a_dynamic_throttle_limits_followers_that_lag(cluster: ProcessCluster) -> None:
    load = Load(cluster)
    load.write(0.5)
    in_sync(cluster, 1, 2, 3)
    leader = leader_of(cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    rate, replicas = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"

    def change(kind: ConfigResource.Type, name: str, key: str, value: str | None) -> None:  # type: ignore[valid-type]  # confluent_kafka sets it at run time
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=how)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    lagging = next(node for node in cluster.brokers if node.node_id != leader)
    lagging.kill()
    in_sync(cluster, *(node.node_id for node in cluster.brokers if node is not lagging))
    with pytest.raises(KafkaException):
        change(ConfigResource.Type.BROKER, str(leader), rate, "-1")
    change(ConfigResource.Type.BROKER, str(leader), rate, "0")
    change(ConfigResource.Type.TOPIC, TOPIC, replicas, f"0:{leader}")
    load.write(1)
    lagging.start()
    load.write(2)
    load.flush()
    in_sync(cluster, *(node.node_id for node in cluster.brokers if node is not lagging))
    assert len(log_bytes(lagging)) < len(log_bytes(cluster[leader]))
    change(ConfigResource.Type.BROKER, str(leader), rate, None)
    all_alike(cluster)


def test_a_leader_that_was_stopped_comes_back_as_a_follower(cluster: ProcessCluster) -> None:
    load = Load(cluster)
    load.write(0.5)
    in_sync(cluster, 1, 2, 3)
    zombie = leader_of(cluster)
    cluster[zombie].pause()
    eventually(lambda: standing(cluster)[0] not in (-1, zombie), "another one leads")
    load.write(1)
    cluster[zombie].resume()
    load.write(0.5)
    load.flush()
    all_alike(cluster)
    assert everything(cluster, load.count) == [b"%d" % number for number in range(load.count)]


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    settings = {"replica.selector.class": "RackAwareReplicaSelector", "odradek.metrics.listener": "127.0.0.1:0"}
    with ProcessCluster(tmp_path, brokers=3, racks=["a", "b", "c"], settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
        leader = leader_of(cluster)
        near = next(node for node in cluster.brokers if node.node_id != leader)
        load = Load(cluster)
        load.write(0.5)
        load.flush()
        in_sync(cluster, 1, 2, 3)
        before = given_to_readers(near)
        assert everything(cluster, load.count, **{"client.rack": near.plan.rack}) == [
            b"%d" % n for n in range(load.count)
        ]
        assert given_to_readers(near) - before >= load.count


def first_from(cluster: ProcessCluster, offset: int) -> int:
    """The offset of the first record that a consumer is given who begins at one."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "check.crcs": "true"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        found = message.offset()
        assert found is not None
        return found
    finally:
        consumer.close()


def given_to_readers(node: NodeProcess) -> float:
    """Bytes of records that a broker has given to consumers and followers."""
    found = re.findall(r"metrics are served address=(\S+)", node.log_text())
    with urlopen(f"http://{found[-1]}/metrics", timeout=90) as page:
        text = page.read().decode()
    match = re.search(r"^odradek_fetched_bytes_total (\S+)$", text, re.MULTILINE)
    assert match is not None, text
    return float(match[1])


def test_damaged_batches_are_fetched_again(cluster: ProcessCluster) -> None:
    """Both followers have other batches damaged when the leader dies: readers get all, from the one or the other.

    Each has a batch with a damaged header, and damage in the batch behind it. A reader fetches that one first, and the
    index has its position.
    """
    load = Load(cluster)
    load.write(3)
    load.flush()
    in_sync(cluster, 1, 2, 3)
    leader = leader_of(cluster)
    others = [node for node in cluster.brokers if node.node_id != leader]
    # Node -> the offset that is asked for first, and where the batch before it was.
    asked_first: dict[int, tuple[int, int]] = {}
    for part, node in enumerate(others, start=1):
        node.stop()
        path = next((node.plan.data_dir / f"{TOPIC}-0").glob("*.log"))
        data = bytearray(path.read_bytes())
        batches = list(read_batches(data))
        places = [place for _, place in struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes())]
        number = [position for position, _ in batches].index(places[len(places) * part // 3])
        position, header = batches[number]
        data[position + header.size_bytes - 1] ^= 0x10  # what the checksum covers
        before, _ = batches[number - 1]
        data[before : before + HEADER_BYTES] = bytes(HEADER_BYTES)
        path.write_bytes(data)
        asked_first[node.node_id] = header.last_offset, before
        node.start()
        in_sync(cluster, 1, 2, 3)
    cluster[leader].kill()
    eventually(lambda: standing(cluster)[0] not in (-1, leader), "another leads")
    now_leads = cluster[leader_of(cluster)]
    wanted, lost_at = asked_first[now_leads.node_id]
    assert first_from(cluster, wanted) == wanted
    repaired = re.findall(r"corrupt batches repaired from a replica .* position=(\d+)", now_leads.log_text())
    assert int(repaired[0]) == lost_at, "what lies before the damage that was met is repaired first"
    assert everything(cluster, load.count, **{"check.crcs": "true"}) == load.acknowledged
    assert "a damaged batch is not served" in now_leads.log_text()
    assert "corrupt batches repaired from a replica" in now_leads.log_text()
    assert log_bytes(now_leads) == log_bytes(cluster[leader])
