"""Nodes of either broker, each a broker and a controller, that can be killed, stopped, and measured: mostly three."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.common.topic_names import METADATA_TOPIC
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from odradek.testing.processes import NodeProcess, ProcessCluster
from tests.support.clients.api_calls import Calls
from tests.support.nodes.apache_kafka import ApacheKafka, random_uuid, run_tool
from tests.support.nodes.node import free_port

T = TypeVar("T")
NODES = (1, 2, 3)
FIVE = (1, 2, 3, 4, 5)
KAFKA_HEAP = "512m"
PATIENCE_S = 120.0
# Five JVMs that begin together on two processors starve each other: one after the other, and with more patience.
BETWEEN_STARTS_S = 1.0
START_PATIENCE_S = 300.0
# Both at their defaults, but for small internal topics, deleted topics that leave the disk, and two in-sync copies.
SETTINGS: Mapping[str, object] = {
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "log.segment.delete.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
}


def until(holds: Callable[[], T | Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait, looking every few milliseconds; connections that fail count as not yet. Raises TimeoutError."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except (OSError, KafkaException):
            pass
        time.sleep(0.005)
    raise TimeoutError(f"never: {what}")


class Trio:
    """Nodes under measurement; `nodes` by id, each with launch, kill, stop, pid and a port."""

    def __init__(self, name: str, nodes: Mapping[int, NodeProcess | ApacheKafka]) -> None:
        self.name = name
        self.nodes = dict(nodes)
        self.running: set[int] = set()
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def admin(self) -> AdminClient:
        """One client for all requests: a new one would have to learn the brokers."""
        if self._admin is None:
            settings: dict[str, Any] = {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 200,
            }
            self._admin = AdminClient(settings)
        return self._admin

    def start(self) -> None:
        """Three at once, more one after the other; returns when all are there."""
        for node_id in self.nodes:
            self.launch(node_id)
            if len(self.nodes) > len(NODES):
                time.sleep(BETWEEN_STARTS_S)
        self.whole(START_PATIENCE_S)

    def whole(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until all are part of the cluster."""

        def all_there() -> bool:
            return len(self.admin.describe_cluster(request_timeout=5).result(5).nodes) == len(self.nodes)

        until(all_there, "all are there", patience_s)

    def stop(self) -> None:
        """kill -9 of all: how they end together is not measured."""
        for node_id in tuple(self.running):
            self.kill(node_id)

    def launch(self, node_id: int) -> None:
        self.nodes[node_id].launch()
        self.running.add(node_id)

    def heal(self) -> None:
        """Start what does not run, after a measurement that ended early; restart all where that is not enough."""
        for node_id in self.nodes:
            if node_id not in self.running:
                self.launch(node_id)
        try:
            self.whole()
        except TimeoutError:
            self.stop()
            self.start()

    def kill(self, node_id: int) -> None:
        self.running.discard(node_id)
        self.nodes[node_id].kill()

    def stop_cleanly(self, node_id: int) -> None:
        self.running.discard(node_id)
        self.nodes[node_id].stop()

    def memory_bytes(self) -> int:
        """Resident memory of the processes."""
        total = 0
        for node_id in self.running:
            status = Path(f"/proc/{self.nodes[node_id].pid}/status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines())
            total += int(fields["VmRSS"].split()[0]) * 1024
        return total

    def data_bytes(self, topic: str) -> int:
        """The size of the topic's logs on the disks of all."""
        paths = [path for node in self.nodes.values() for path in _data_dir(node).glob(f"{topic}-*/*.log")]
        return sum(path.stat().st_size for path in paths)

    def create(self, topic: str, partitions: int, copies: int) -> None:
        """Make a topic, and wait until every copy of it is in sync."""
        config = {"min.insync.replicas": str(min(2, copies))}
        _unless_done(self.admin.create_topics([NewTopic(topic, partitions, copies, config=config)])[topic])
        self.in_sync(topic, copies, partitions)

    def create_on(self, topic: str, replicas: Sequence[Sequence[int]], *, min_in_sync: int) -> None:
        """Make a topic whose replicas are on these nodes, the first of each to lead it; all are in sync then."""
        config = {"min.insync.replicas": str(min_in_sync)}
        new = NewTopic(topic, len(replicas), replica_assignment=[list(each) for each in replicas], config=config)
        _unless_done(self.admin.create_topics([new])[topic])
        self.in_sync(topic, len(replicas[0]), len(replicas))

    def delete(self, topic: str) -> None:
        _unless_done(self.admin.delete_topics([topic])[topic])

    def in_sync(self, topic: str, copies: int, partitions: int) -> None:
        """Wait until so many copies of all partitions are in sync."""

        def whole() -> bool:
            found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            return len(found) == partitions and all(len(each.isrs) >= copies for each in found.values())

        until(whole, f"{topic} is in sync")

    def copies_in_sync(self, topic: str) -> int:
        """The number of in-sync replicas of partition 0."""
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(partitions[0].isrs) if 0 in partitions else 0

    def led_by(self, topic: str) -> Mapping[int, int]:
        """The number of a topic's partitions that each node leads."""
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return Counter(each.leader for each in partitions.values())

    def port(self) -> int:
        """The port for clients of a running node."""
        return _port(self.nodes[min(self.running)])

    def leader(self, topic: str) -> int:
        """The leader of partition 0, once there is one."""

        def ask() -> int:
            found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
            return 0 if found is None else max(found.leader, 0)

        return int(until(ask, "somebody leads"))

    def controller(self) -> int:
        """The active controller, as a running node reports it."""
        partition = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])

        def ask() -> int:
            with Calls(self.port()) as calls:
                answer = calls.request(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=[partition]))
            leader: int = answer.topics[0].partitions[0].leader_id
            return max(leader, 0)

        return int(until(ask, "somebody is the active controller"))


def _unless_done(future: Any) -> None:
    """Wait for an answer. Where a request was sent twice, the controller having moved, the first has done it."""
    try:
        future.result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise


def _port(node: NodeProcess | ApacheKafka) -> int:
    return node.port if isinstance(node, ApacheKafka) else node.plan.port


def _data_dir(node: NodeProcess | ApacheKafka) -> Path:
    return node.data_dir if isinstance(node, ApacheKafka) else node.plan.data_dir


def kafka_trio(folder: Path, node_ids: Sequence[int] = NODES) -> Trio:
    """Nodes of Apache Kafka, formatted."""
    ports = {node_id: free_port() for node_id in node_ids}
    nodes = {
        node_id: ApacheKafka(folder / f"kafka-{node_id}", SETTINGS, heap=KAFKA_HEAP, measured=True)
        for node_id in node_ids
    }
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
    cluster_id = random_uuid()
    for node_id, node in nodes.items():
        node.settings |= {
            "node.id": node_id,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{ports[node_id]}",
        }
        node.write_properties()
        run_tool("kafka.tools.StorageTool", ["format", "-t", cluster_id, "-c", node.properties])
    return Trio("Apache Kafka", nodes)


def our_trio(folder: Path, node_ids: Sequence[int] = NODES) -> Trio:
    """Nodes of Odradek, formatted."""
    return Trio("Odradek", ProcessCluster(folder / "odradek", brokers=len(node_ids), settings=SETTINGS).nodes)
