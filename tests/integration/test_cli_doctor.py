"""`odradek doctor` finds what is wrong with real nodes: each thing is made so, on one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.admin.cluster_checks import check_cluster
from odradek.admin.cluster_facts import ClusterFacts, Inspection, round_trip_ms
from odradek.admin.finding import Finding, Report, Severity
from odradek.cli import app, errors
from odradek.client.cluster import Cluster as Connected
from odradek.client.cluster import parse_bootstrap
from odradek.common.real_io import RealClock, RealNetwork
from odradek.server.startup.ignored_settings import has_effect
from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import commit_alone, create_topic, produce_all
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.cluster import Cluster, metadata, topic_at
from tests.support.nodes.node import Node, silent_port
from tests.support.nodes.tls_node import TlsNode
from tests.support.waiting import PATIENCE_S, eventually

# The first three are the quorum, in one rack; the fourth is alone in another one, and is killed.
GONE = 4
TOPICS = {
    "single": ("1", 1),
    "loose": ("1:2:3", 1),
    "strict": ("1:3", 2),
    "together": ("1:2", 2),
    "offline": (f"{GONE}", 1),
    "few": (f"1:{GONE}", 2),
    "thin": (f"1:2:{GONE}", 2),
    "swapped": ("2:1:3", 2),
    "heavy": (",".join(["1:2:3"] * 12), 2),
    "read": ("1:2:3,2:3:1", 2),
}
SKEW_MS = 120_000
APART_S = 10.0


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """A member of a group that has read one record and reads no more."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        assert eventually(lambda: consumer.poll(1.0), f"{group} reads", patience_s=PATIENCE_S)
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        yield
    finally:
        consumer.close()


def make_it_so(cluster: Cluster) -> None:
    """Topics that are placed badly, read badly, and a broker that is gone."""
    bootstrap = cluster.bootstrap_servers
    for topic, (assignment, needed) in TOPICS.items():
        options = ("--replica-assignment", assignment, "--config", f"min.insync.replicas={needed}")
        odradek(bootstrap, "topics", "create", topic, *options)
    odradek(bootstrap, "configs", "alter", "--topic", "heavy", "--add-config", "local.retention.ms=5")
    # Its first replica is in sync, and another one leads.
    odradek(bootstrap, "partitions", "move", "--to", "swapped-0=1,2,3", "--yes")
    records = [(b"%d" % number, b"x" * 100) for number in range(2_000)]
    produce_all(bootstrap, "single", records, acks="all")
    produce_all(bootstrap, "read", records[:100], acks="all")
    commit_alone(bootstrap, "left", {("single", 0): 0})
    commit_alone(bootstrap, "other", {("read", 0): 1})
    produce_all(bootstrap, "heavy", records[:100], acks="all")
    cluster[GONE].kill()
    for node in cluster.brokers[:3]:
        eventually(lambda node=node: GONE not in {each.node_id for each in metadata(node).brokers}, "it is fenced")
        in_sync = {"offline": [], "thin": [1, 2], "few": [1]}
        for topic, nodes in in_sync.items():
            eventually(partial(is_in_sync, node, topic, nodes), f"the in-sync set of {topic} is {nodes}")


def is_in_sync(node: NodeProcess, topic: str, nodes: list[int]) -> bool:
    (partition,) = topic_at(node, topic).partitions
    return list(partition.isr_nodes) == nodes


async def inspect_cluster(cluster: Cluster, report: Report) -> ClusterFacts:
    async def pause(apart_s: float) -> None:
        more = [(b"k", b"later")] * 10
        await asyncio.to_thread(produce_all, cluster.bootstrap_servers, "single", more, acks="all")

    addresses = parse_bootstrap(cluster.bootstrap_servers)[:3]
    async with Connected(RealNetwork(), RealClock(), addresses) as connected:
        inspection = Inspection(connected, report, APART_S, wall_ms=lambda: time.time() * 1000 + SKEW_MS, pause=pause)
        return await inspection.run()


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFacts]:
    settings = {
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "num.io.threads": 3,
        "log.retentoin.hours": 3,
    }
    directory = tmp_path_factory.mktemp("doctor")
    with Cluster(directory, brokers=4, racks=["a", "a", "a", "b"], settings=settings) as cluster:
        make_it_so(cluster)
        report = Report()
        with member(cluster.bootstrap_servers, "slow", "single"):
            facts = asyncio.run(inspect_cluster(cluster, report))
        assert not report.skipped
        assert facts.round_trips_ms.keys() == {1, 2, 3}
        yield facts


@pytest.fixture(scope="module")
def findings(facts: ClusterFacts) -> dict[str, Finding]:
    now = datetime.datetime.now(datetime.UTC)
    checked = check_cluster(facts, now=now, apart_s=APART_S, honoured=has_effect, uneven_bytes=1_000)
    return {each.check + ("-internal" if each.subjects == ["__consumer_offsets"] else ""): each for each in checked}


@pytest.mark.parametrize(
    ("check", "severity", "subject"),
    [
        ("replication-factor", 0, "single"),
        ("min-insync-replicas", 0, "loose"),
        ("min-insync-replicas-of-all", 1, "strict"),
        ("one-rack", 0, "together-0"),
        ("voters-in-one-rack", 0, "a"),
        ("fenced-broker", 0, str(GONE)),
        ("offline", 0, "offline-0"),
        ("under-min-isr", 0, "few-0"),
        ("under-replicated", 1, "thin-0"),
        ("preferred-leaders", 2, "swapped-0"),
        ("uneven-leaders", 1, "broker 1: "),
        ("uneven-disks", 1, "broker 1: "),
        ("partition-without-reader", 1, "read-1"),
        ("topic-without-reader", 2, "heavy"),
        ("group-falls-behind", 1, "slow (2,009 records)"),
        ("group-without-members", 1, "left (2,010 records)"),
        ("unknown-setting", 1, "log.retentoin.hours of broker 1"),
        ("ignored-setting", 1, "num.io.threads of broker 1"),
        ("ignored-setting", 1, "local.retention.ms of topic heavy"),
        ("clock", 0, ""),
    ],
)
def test_each_problem_of_a_cluster_is_found(
    findings: dict[str, Finding], check: str, severity: int, subject: str
) -> None:
    finding = findings[check]
    assert finding.severity is Severity(severity)
    assert not subject or any(each.startswith(subject) for each in finding.subjects), finding.subjects


def test_the_clock_of_a_broker_that_is_behind_is_named(facts: ClusterFacts, findings: dict[str, Finding]) -> None:
    seen = findings["clock"].seen
    assert "behind this machine's" in seen and f"{-facts.clock_ahead_ms / 1000:.1f} s" in seen
    # However slow the machine was; the rest is for whole milliseconds and for a clock that is set meanwhile.
    assert abs(facts.clock_ahead_ms + SKEW_MS) <= facts.clock_error_ms + 1_000


def test_the_command_checks_one_node(node: Node) -> None:
    create_topic(node.bootstrap, "orders")
    shown = odradek(node.bootstrap, "doctor", "--watch", 0.1, code=errors.FAILED).out
    assert "1 topic has one replica: orders" in shown and "the quorum has 1 voter" in shown
    assert shown.index("BAD") < shown.index("bad, ") and "fix: have three controllers" in shown
    found = odradek(node.bootstrap, "doctor", "--json", code=errors.FAILED).json
    assert found["bad"] is True and found["skipped"] == {}
    (finding,) = [each for each in found["findings"] if each["check"] == "replication-factor"]
    assert (finding["severity"], finding["subjects"]) == ("bad", ["orders"])
    # The directory is looked at beside the cluster where it is named.
    found = odradek(node.bootstrap, "doctor", "-d", "/dev/null/data", "--json", code=errors.FAILED).json
    assert "log-directory" in {each["check"] for each in found["findings"]}


def test_a_certificate_that_expires_soon_is_found(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    soon = certificates.issue("soon", valid=datetime.timedelta(days=3))
    with TlsNode(tmp_path / "node", certificates.server(keystore=soon)) as node:
        config = tmp_path / "client.properties"
        config.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificates.ca}\n"
        )
        options = ("doctor", "--command-config", config, "--json")
        found = odradek(node.tls_address, *options, code=errors.FAILED).json["findings"]
    assert "the certificate of broker 1 expires in 3 days" in {each["seen"] for each in found}


def test_the_command_checks_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates = Certificates(tmp_path / "certificates")
    old = certificates.issue("old", valid=datetime.timedelta(days=-3))
    config = tmp_path / "server.properties"
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": "SSL://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SSL",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "default.replication.factor": 3,
        "offsets.topic.replication.factor": 1,
        "unclean.leader.election.enable": "true",
        "num.io.threads": 3,
        "log.retentoin.hours": 3,
        **certificates.server(keystore=old),
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    assert app.run(["doctor", "--config", str(config)]) == errors.FAILED
    shown = capsys.readouterr().out
    for expected in (
        "topics get one replica: offsets.topic.replication.factor=1",
        "min.insync.replicas is 1 for topics of 3 replicas",
        "unclean.leader.election.enable is true",
        "the quorum has 1 voter",
        "did you mean log.retention.hours?",
        "num.io.threads is ignored",
        "the certificate of listener SSL has expired",
        f"log directories share one disk: {tmp_path / 'a'}, {tmp_path / 'b'}",
    ):
        assert expected in shown, expected
    assert not (tmp_path / "a").exists()
    # A file that a node would refuse gets the error message of the node.
    config.write_text("process.roles=broker\n")
    assert app.run(["doctor", "--config", str(config)]) == errors.BAD_CONFIG
    assert "node.id is missing" in capsys.readouterr().err


def test_the_round_trip_to_a_node_is_measured(node: Node) -> None:
    assert asyncio.run(round_trip_ms("127.0.0.1", node.port)) is not None
    with silent_port() as port:
        assert asyncio.run(round_trip_ms("127.0.0.1", port)) is None
