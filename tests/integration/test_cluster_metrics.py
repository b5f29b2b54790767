"""Metrics of topics and of the cluster, on three nodes: what was written and read, and who leads or is behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.server.cluster_metrics import denial_family
from odradek.testing.processes import NodeProcess
from tests.support.clients.api_calls import Calls
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.nodes.permissions import allow_rules, node_in_process, port_of
from tests.support.nodes.scrapes import ANY_PORT, metrics_address, scrape
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {**ANY_PORT, "offsets.topic.num.partitions": 1}
    with Cluster(tmp_path_factory.mktemp("metrics"), settings=settings) as made:
        yield made


def value(node: NodeProcess, name: str, /, **labels: object) -> float:
    wanted = frozenset((key, str(each)) for key, each in labels.items())
    return scrape(metrics_address(node)).get(f"odradek_{name}", {}).get(wanted, -100.0)


def create(cluster: Cluster, topic: str, assignment: str) -> None:
    odradek(cluster.bootstrap_servers, "topics", "create", "--topic", topic, "--replica-assignment", assignment)


def test_topics_have_rates_and_waiting_producers_are_seen(cluster: Cluster) -> None:
    create(cluster, "written", "1:2")
    await_in_sync(cluster.brokers, "written", partitions=1, copies=2)
    produce_all(cluster.bootstrap_servers, "written", [(None, b"v" * 100)] * 20)
    assert len(read_all(cluster.bootstrap_servers, "written")) == 20
    leader = cluster[1]
    assert value(leader, "topic_produced_records_total", topic="written") == 20
    produced = value(leader, "topic_produced_bytes_total", topic="written")
    assert produced > 2000
    assert value(leader, "topic_fetched_bytes_total", topic="written") >= produced
    eventually(lambda: value(leader, "topic_replicated_bytes_total", topic="written") >= produced)
    assert value(cluster[3], "topic_produced_bytes_total", topic="written") == -100

    assert value(leader, "produces_waiting") == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    cluster[2].pause()
    try:
        producer.produce("written", b"waits")
        eventually(lambda: producer.poll(0) is not None and value(leader, "produces_waiting") == 1)
    finally:
        cluster[2].resume()
    assert producer.flush(PATIENCE_S) == 0
    assert value(leader, "produces_waiting") == 0
    odradek(cluster.bootstrap_servers, "topics", "delete", "written")
    eventually(lambda: value(leader, "topic_produced_bytes_total", topic="written") == -100, "it is forgotten")


def test_the_quorum_and_what_is_missing_are_seen(cluster: Cluster) -> None:
    active = cluster.await_controller()
    leads = cluster[active]
    eventually(lambda: [value(node, "quorum_leader") for node in cluster.brokers] == [active] * 3)
    assert [value(node, "controller_active") for node in cluster.brokers] == [n == active for n in (1, 2, 3)]
    eventually(lambda: [value(node, "metadata_lag_records") for node in cluster.brokers] == [0] * 3)
    assert value(leads, "quorum_end_offset") >= value(leads, "quorum_high_watermark") > 0
    assert value(leads, "quorum_epoch") >= 1
    lost = next(node for node in cluster.brokers if node is not leads)
    eventually(lambda: value(leads, "quorum_replica_lag_records", node=lost.node_id) == 0)
    create(cluster, "lost", str(lost.node_id))
    eventually(lambda: value(leads, "cluster_topics") >= 1)
    assert value(leads, "cluster_partitions_without_leader") == 0 and value(leads, "cluster_brokers") == 3
    lost.kill()
    eventually(lambda: value(leads, "cluster_partitions_without_leader") == 1, "a partition has no leader")
    eventually(lambda: value(leads, "cluster_brokers_fenced") == 1)
    assert value(leads, "cluster_partitions") >= 1
    eventually(lambda: value(leads, "quorum_replica_lag_records", node=lost.node_id) > 0)
    lost.start()
    eventually(lambda: value(leads, "cluster_partitions_without_leader") == 0)


def test_denials_are_counted_by_api(tmp_path: Path) -> None:
    with node_in_process(tmp_path) as node:
        allow_rules(node, (AclOperation.DESCRIBE, AclResourceType.TOPIC, "open"))
        with Calls(port_of(node)) as calls:
            for topic in ("open", "closed", "closed"):
                asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
                calls.ask(ApiKey.METADATA, 9, asked)
        (sample,) = denial_family(node.broker.services.metrics).samples
        assert (sample.labels, sample.value) == ((("api", "Metadata"),), 2)
