"""Alerts, dashboards and Kafka's names, with a real Prometheus that scrapes real nodes, in which each fault is made.

The rules are those of deploy/monitoring, without the times for which a fault must last, and over seconds for minutes.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import commit_alone, create_topic
from tests.support.clients.quotas import set_quotas
from tests.support.disks.file_system import Ballast, skip_unless_root, small_tmpfs
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.cluster import Cluster, await_in_sync, topic_at
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.prometheus import Prometheus, needs_prometheus
from tests.support.nodes.scrapes import ANY_PORT, metrics_address
from tests.support.waiting import PATIENCE_S, eventually
from tools.dashboard_panels import has_data, queries_of
from tools.known_dashboards import panels

pytestmark = [pytest.mark.slow, needs_prometheus]

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
MIB = 1 << 20
# They are about the machine as well, which other tests use.
OF_THE_MACHINE = {"OdradekLoopLate", "OdradekRequestsSlow", "OdradekDiskNearlyFull"}
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret" user_admin="admin-secret" user_alice="plain-secret";'
)
HUNGRY: dict[str, str | None] = {"client-id": "hungry"}
# The jobs of the scrapes: of the cluster, and of the node alone.
CLUSTER, ODD = "odradek", "odradek-odd"


def quick_rules(directory: Path) -> Path:
    """The rules without patience."""
    text = (FOLDER / "odradek-rules.yml").read_text()
    path = directory / "rules.yml"
    path.write_text(re.sub(r"^ +for: .*\n", "", text, flags=re.MULTILINE).replace("[5m]", "[20s]"))
    return path


class World:
    """A cluster, and a node of another one with small disks and logins; both are scraped."""

    def __init__(self, cluster: Cluster, odd: OddNode, prometheus: Prometheus) -> None:
        self.cluster = cluster
        self.odd = odd
        self.prometheus = prometheus

    def firing(self, job: str = CLUSTER) -> set[str]:
        """The alerts that fire for nodes of a job, or for a whole cluster: these have no job."""
        series = self.prometheus.query('ALERTS{alertstate="firing"}')
        return {each["metric"]["alertname"] for each in series if each["metric"].get("job", job) == job}

    def fires(self, *alerts: str, job: str = CLUSTER) -> None:
        """Wait until all of these fire for nodes of a job."""
        wanted = set(alerts)
        eventually(lambda: wanted <= self.firing(job), lambda: f"{wanted - self.firing(job)} fire")

    def ends(self, *alerts: str, job: str = CLUSTER) -> None:
        """Wait until none of these fires for nodes of a job."""
        gone = set(alerts)
        eventually(lambda: not gone & self.firing(job), lambda: f"{gone & self.firing(job)} no longer fire")

    @contextmanager
    def fault(self, *alerts: str, job: str = CLUSTER) -> Iterator[None]:
        """Alerts that do not fire before the block, which makes their fault, and that all fire behind it."""
        self.ends(*alerts, job=job)
        yield
        self.fires(*alerts, job=job)

    def producer(self, **settings: object) -> Producer:
        """It begins at the first broker, which runs all the time."""
        return Producer({"bootstrap.servers": self.cluster[1].bootstrap, "linger.ms": 0, **settings})


class OddNode(Node):
    """A node with a small disk, a directory that will be lost, a scrub that never rests, and logins over TLS."""

    def __init__(self, directory: Path, disk: Path) -> None:
        super().__init__(directory)
        self.ballast = Ballast(disk)
        self.small, self.gone = disk / "data", directory / "gone"
        self.sasl_port = free_port()
        self.certificates = Certificates(directory / "certificates")
        keystore = self.certificates.issue("node", valid=datetime.timedelta(days=3))
        plain = f"CONTROLLER://127.0.0.1:{self.controller_port},PLAINTEXT://127.0.0.1:{self.port}"
        self.overrides |= {
            **ANY_PORT,
            "log.dirs": f"{self.small},{self.gone}",
            "metadata.log.dir": directory / "metadata",
            "listeners": f"EXTERNAL://127.0.0.1:{self.sasl_port},{plain}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.external.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.external.plain.sasl.jaas.config": USERS,
            **self.certificates.server("listener.name.external.", keystore),
            "connection.failed.authentication.delay.ms": 10,
            "odradek.log.scrub.interval.ms": 100,
            "odradek.log.scrub.bytes.per.second": 100 * MIB,
            "replica.high.watermark.checkpoint.interval.ms": 100,
        }

    def client(self, password: str) -> Producer:
        """A client of the listener with logins."""
        return Producer(
            {
                **self.certificates.client(),
                "bootstrap.servers": f"127.0.0.1:{self.sasl_port}",
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": password,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    skip_unless_root()
    directory = tmp_path_factory.mktemp("alerts")
    settings = {
        **ANY_PORT,
        "odradek.metrics.names": "both",
        "offsets.topic.num.partitions": 1,
        "odradek.group.lag.interval.ms": 200,
        "replica.lag.time.max.ms": 3000,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
    with ExitStack() as stack:
        disk = stack.enter_context(small_tmpfs(directory / "disk", 64 * MIB))
        odd = stack.enter_context(OddNode(directory / "odd", disk))
        cluster = stack.enter_context(Cluster(directory / "cluster", brokers=3, controllers=1, settings=settings))
        targets = [(metrics_address(node), labels_of(node)) for node in cluster.nodes.values()]
        targets.append((metrics_address(odd), {"job": ODD}))
        prometheus = Prometheus(directory / "prometheus", targets, [quick_rules(directory)])
        yield World(cluster, odd, stack.enter_context(prometheus))


def labels_of(node: NodeProcess) -> dict[str, str]:
    """The labels that the scrape configurations of public dashboards add for a node."""
    return {"job": CLUSTER, "kafka_cluster": "main", "kubernetes_pod_name": f"main-kafka-{node.node_id}"}


@contextmanager
def load(world: World) -> Iterator[None]:
    """Records are written and read, by a client with quotas and by one without, for as long as the block lasts."""
    over = threading.Event()

    def run() -> None:
        producers = [world.producer(), world.producer(**{"client.id": "hungry"})]
        reader = Consumer(
            {
                "bootstrap.servers": world.cluster[1].bootstrap,
                "group.id": "readers",
                "client.id": "hungry",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        reader.subscribe(["orders"])
        while not over.wait(0.05):
            for producer in producers:
                producer.produce("orders", b"v" * 100)
                producer.poll(0)
            reader.poll(0)
        reader.close()
        for producer in producers:
            producer.flush(PATIENCE_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def create(world: World, topic: str, assignment: str, *more: str) -> None:
    odradek(world.cluster[1].bootstrap, "topics", "create", "--topic", topic, "--replica-assignment", assignment, *more)


def test_a_healthy_cluster_has_data_in_all_panels_and_no_alert(world: World) -> None:
    create(world, "orders", "1:2:3,2:3:1,3:1:2")
    await_in_sync(world.cluster.brokers, "orders", partitions=3, copies=3)
    quotas = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e6}
    set_quotas(world.cluster[1].plan.port, HUNGRY, controller_mutation_rate=1e6, **quotas)
    admin = AdminClient({"bootstrap.servers": world.cluster[1].bootstrap, "client.id": "hungry"})
    admin.create_topics([NewTopic("made", 1)])["made"].result(PATIENCE_S)
    world.odd.client("plain-secret").list_topics(timeout=PATIENCE_S)
    with load(world):
        board = json.loads((FOLDER / "odradek-dashboard.json").read_text())
        ours = [(query.panel, query.text) for query in queries_of(board, {})]
        known = [query for some in panels().values() for query in some]
        there = [(query.panel, query.query) for query in known if not query.why_not]
        for panel, text in ours + there:
            eventually(partial(_has_data, world, text), f"{panel}: {text}", pause_s=0.5)
        assert [query for query in known if query.why_not and _has_data(world, query.query)] == []
        eventually(lambda: _values(world, 'min(count_over_time(up{job="odradek"}[1m]))')[0] > 5, pause_s=0.5)
    assert world.firing() - OF_THE_MACHINE == set()


def _has_data(world: World, text: str) -> bool:
    return has_data(world.prometheus.query(text))


def _values(world: World, text: str) -> list[float]:
    return [float(each["value"][1]) for each in world.prometheus.query(text)]


def test_a_group_that_falls_behind(world: World) -> None:
    create(world, "old", "1:2:3")
    hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    producer = world.producer()
    producer.produce("old", b"v", timestamp=hour_ago_ms)
    assert producer.flush(PATIENCE_S) == 0
    with world.fault("OdradekGroupFallsBehind"):
        commit_alone(world.cluster[1].bootstrap, "late", {("old", 0): 0})
    commit_alone(world.cluster[1].bootstrap, "late", {("old", 0): 1})
    world.ends("OdradekGroupFallsBehind")


def test_clients_that_wait_for_their_quota(world: World) -> None:
    create(world, "eaten", "1:2:3")
    set_quotas(world.cluster[1].plan.port, HUNGRY, producer_byte_rate=1000.0)
    producer = world.producer(**{"client.id": "hungry"})

    def goes_on() -> bool:
        producer.produce("eaten", b"v" * 2000)
        producer.poll(0.1)
        return "OdradekClientsThrottled" in world.firing()

    with world.fault("OdradekClientsThrottled"):
        eventually(goes_on)
    set_quotas(world.cluster[1].plan.port, HUNGRY, producer_byte_rate=1e9)
    assert producer.flush(PATIENCE_S) == 0


def test_a_broker_that_hangs(world: World) -> None:
    create(world, "strict", "1:2:3", "--config", "min.insync.replicas=3")
    await_in_sync(world.cluster.brokers, "strict", partitions=1, copies=3)
    producer = world.producer(**{"batch.num.messages": 1, "message.timeout.ms": 600_000})
    producer.list_topics("strict", PATIENCE_S)
    hangs = world.cluster[3]
    of_the_broker = (
        "OdradekNodeDown",
        "OdradekPartitionsUnderReplicated",
        "OdradekPartitionsUnderMinIsr",
        "OdradekBrokerFenced",
        "OdradekQuorumReplicaBehind",
        "OdradekWritesRefused",
    )
    try:
        with world.fault(*of_the_broker):
            hangs.pause()
            for _ in range(16):
                producer.produce("strict", b"v")
            create(world, "many", ",".join(["1:2"] * 150))
        world.fires("OdradekRequestsSlow")
    finally:
        hangs.resume()
    assert producer.flush(PATIENCE_S) == 0
    world.fires("OdradekLoopLate")
    world.ends(*of_the_broker)


def test_partitions_that_lose_all_replicas_and_an_unclean_election(world: World) -> None:
    create(world, "frail", "2:3", "--config", "unclean.leader.election.enable=true")
    await_in_sync(world.cluster.brokers, "frail", partitions=1, copies=2)
    producer = world.producer()
    producer.produce("frail", b"v")
    assert producer.flush(PATIENCE_S) == 0
    commit_alone(world.cluster[1].bootstrap, "late", {("frail", 0): 0})
    with world.fault("OdradekPartitionsWithoutLeader", "OdradekGroupLagUnknown"):
        world.cluster[3].kill()
        eventually(lambda: topic_at(world.cluster[1], "frail").partitions[0].isr_nodes == [2])
        world.cluster[2].kill()
    with world.fault("OdradekUncleanElection"):
        world.cluster[3].start()
    world.ends("OdradekPartitionsWithoutLeader", "OdradekGroupLagUnknown")


def test_a_cluster_without_a_controller(world: World) -> None:
    with world.fault("OdradekNoActiveController", "OdradekMetadataBehind"):
        for node in world.cluster.controllers:
            node.kill()


def test_certificates_and_logins(world: World) -> None:
    with world.fault("OdradekLoginsFail", job=ODD):
        client = world.odd.client("wrong")
        eventually(lambda: client.poll(0.1) is not None and "OdradekLoginsFail" in world.firing(ODD))
    world.fires("OdradekCertificateExpires", job=ODD)
    world.odd.certificates.issue("node", valid=datetime.timedelta(days=300))
    world.ends("OdradekCertificateExpires", job=ODD)


def test_disks_that_flip_bits_fill_up_and_vanish(world: World) -> None:
    odd = world.odd
    create_topic(odd.bootstrap, "kept", 2, **{"segment.bytes": MIB})
    producer = Producer({"bootstrap.servers": odd.bootstrap, "batch.num.messages": 1})
    for number in range(2):
        for _ in range(30):
            producer.produce("kept", b"v" * 100_000, partition=number)
    assert producer.flush(PATIENCE_S) == 0
    flipped = next(iter(sorted(odd.small.glob("kept-*/*.log"))))
    content = bytearray(flipped.read_bytes())
    with world.fault("OdradekDamagedRecords", job=ODD), flipped.open("r+b") as file:
        file.seek(len(content) // 2)
        file.write(bytes([content[len(content) // 2] ^ 1]))

    odd.ballast.fill(leave_bytes=4 * MIB)
    world.fires("OdradekDiskNearlyFull", job=ODD)
    odd.ballast.release()

    with world.fault("OdradekLogDirectoryOffline", job=ODD):
        shutil.rmtree(odd.gone.rename(odd.directory / "forgotten"))


def test_all_alerts_have_a_test() -> None:
    rules = re.findall(r"- alert: (\w+)", (FOLDER / "odradek-rules.yml").read_text())
    tested = set(re.findall(r'"(Odradek\w+)"', Path(__file__).read_text()))
    assert set(rules) <= tested
