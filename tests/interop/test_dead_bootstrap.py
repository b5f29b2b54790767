"""Clients whose bootstrap list names a dead broker and a live one, with leaders that die while they work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.processes import NodeProcess, ProcessCluster
from tests.interop.client_adapters import Entry
from tests.interop.test_clients import finish, start
from tests.support.clients.confluent import admin, read_all
from tests.support.nodes.apache_kafka import require_kafka, run_tool
from tests.support.nodes.cluster import await_in_sync
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PARTITIONS = 3
RECORDS = 60
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three nodes; offsets of groups on all three, so that groups too outlive any one."""
    settings: dict[str, object] = {
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 3,
        "group.initial.rebalance.delay.ms": 0,
    }
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), brokers=3, settings=settings) as running:
        yield running


@pytest.fixture
def whole(cluster: ProcessCluster) -> ProcessCluster:
    """The cluster; nodes that the test before has stopped run again."""
    for node in cluster.brokers:
        if not node.running:
            node.start()
    return cluster


def make(cluster: ProcessCluster, topic: str) -> None:
    client: AdminClient = admin(cluster.bootstrap_servers)
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    client.create_topics([new])[topic].result(30)
    in_sync(cluster, topic)


def in_sync(cluster: ProcessCluster, topic: str) -> None:
    """Wait until every copy of a topic is, as each running broker knows it."""
    await_in_sync(
        (node for node in cluster.brokers if node.running), topic, partitions=PARTITIONS, copies=3, timeout_s=120
    )


def kill(cluster: ProcessCluster, node: NodeProcess) -> None:
    """kill -9, and wait until the others name it no more: kafka-python reports a refused connection to its application
    where the metadata that it was given still does, as they may while another controller is elected."""
    node.kill()
    others = admin(",".join(each.bootstrap for each in cluster.brokers if each.running))
    eventually(lambda: node.node_id not in others.list_topics(timeout=60).brokers)


def entries(client: str) -> list[Entry]:
    return [Entry(f"k{number}", f"{client}/{number}", (("client", client),)) for number in range(RECORDS)]


@pytest.mark.parametrize(
    "dead_first", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["dead first", "dead last"]
)
def test_python_clients_work_past_a_dead_bootstrap_server(whole: ProcessCluster, dead_first: bool) -> None:
    topic = f"python-{dead_first}"
    make(whole, topic)
    dead, live, third = whole.brokers
    bootstrap = ",".join(node.bootstrap for node in ((dead, live) if dead_first else (live, dead)))
    kill(whole, dead)
    writers = {client: start(client, "write", bootstrap, topic, "none") for client in CLIENTS}

    def write(client: str) -> None:
        finish(writers[client], json.dumps([entry.as_json() for entry in entries(client)]))

    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        list(pool.map(write, CLIENTS))
    dead.start()
    in_sync(whole, topic)
    # Another is dead now, which some of the partitions and a group's coordinator may have moved to.
    kill(whole, third)
    bootstrap = ",".join(node.bootstrap for node in ((third, live) if dead_first else (live, third)))
    wanted = sorted(repr(entry) for client in CLIENTS for entry in entries(client))
    count = str(len(wanted))
    readers = {client: start(client, "read", bootstrap, topic, f"{topic}-{client}", count) for client in CLIENTS}

    def read(client: str) -> str:
        return finish(readers[client])

    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        outputs = dict(zip(CLIENTS, pool.map(read, CLIENTS), strict=True))
    for client, output in outputs.items():
        found = [
            Entry(key, value, tuple((name, content) for name, content in headers))
            for key, value, headers in json.loads(output)
        ]
        assert sorted(map(repr, found)) == wanted, f"{client} read something else"


@pytest.mark.java
@pytest.mark.slow
def test_java_clients_work_past_a_dead_bootstrap_server(whole: ProcessCluster) -> None:
    require_kafka()
    make(whole, "java")
    dead, live, third = whole.brokers
    kill(whole, dead)
    bootstrap = ["--bootstrap-server", f"{dead.bootstrap},{live.bootstrap}", "--topic", "java"]
    lines = [f"line {number}" for number in range(RECORDS)]
    run_tool("org.apache.kafka.tools.ConsoleProducer", bootstrap, stdin="\n".join(lines) + "\n")
    assert sorted(message.value() or b"" for message in read_all(live.bootstrap, "java", PARTITIONS)) == sorted(
        line.encode() for line in lines
    )
    dead.start()
    in_sync(whole, "java")
    kill(whole, third)
    bootstrap[1] = f"{third.bootstrap},{live.bootstrap}"
    options = ["--from-beginning", "--max-messages", RECORDS, "--timeout-ms", 60_000, "--group", "java"]
    read = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", [*bootstrap, *options])
    assert sorted(read.stdout.splitlines()) == sorted(lines)
