"""Metrics of topics and of the cluster, on three nodes: bytes written and read, leaders, and replicas that lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

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
from tests.support.nodes.scrapes import ANY_PORT, Labels, metrics_address, scrape
from tests.support.waiting import PATIENCE_S, eventually
from tools.known_dashboards import ROWS, panels


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        **ANY_PORT,
        "offsets.topic.num.partitions": 1,
        "odradek.metrics.names": "both",
        "odradek.group.lag.interval.ms": 100,
    }
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
    # It begins at the leader: at the paused node it would wait for longer than that one stays in the set.
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{leader.plan.port}", "linger.ms": 0})
    producer.list_topics("written", PATIENCE_S)
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


# Nodes without logins have no samples of these.
LOGINS = {f"kafka_server_socket_server_metrics_{how}_authentication_total" for how in ("successful", "failed")}


def test_kafkas_names_are_there_with_their_labels(cluster: Cluster) -> None:
    """A scrape has the metrics that dashboards for Kafka query, with the labels of docs/metrics-kafka.md."""
    create(cluster, "named", "1:2:3,2:3:1,3:1:2")
    await_in_sync(cluster.brokers, "named", partitions=3, copies=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(30):
        producer.produce("named", b"v" * 100, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    reader.subscribe(["named"])
    try:
        eventually(lambda: reader.poll(0.1) is None and reader.assignment())
        reader.commit(offsets=[TopicPartition("named", number, 4 + number) for number in range(3)], asynchronous=False)
        found = eventually(lambda: _with_lags(cluster, "readers"))
        _all_rows_are_there(found)
        _panels_have_data(found)
        _the_cluster_is_counted_once(cluster, found)
    finally:
        reader.close()


def _with_lags(cluster: Cluster, group: str) -> list[dict[str, dict[Labels, float]]]:
    """A scrape of each node, once the lag of a group with a member is known, and fetches were timed."""
    found = [scrape(metrics_address(node)) for node in cluster.brokers]
    key = frozenset({("consumergroup", group)})
    members = [each.get("kafka_consumergroup_members", {}).get(key) for each in found]
    timed = {dict(labels)["request"] for each in found for labels in each["kafka_network_requestmetrics_totaltimems"]}
    return found if 1 in members and {"FetchConsumer", "FetchFollower"} <= timed else []


def _all_rows_are_there(found: list[dict[str, dict[Labels, float]]]) -> None:
    for name, row in ROWS.items():
        labels = [set(dict(each)) for scraped in found for each in scraped.get(name, {})]
        assert name in LOGINS or labels, f"{name} is nowhere"
        assert all(each in (set(row.reading.labels), set()) for each in labels), name


def _panels_have_data(found: list[dict[str, dict[Labels, float]]]) -> None:
    for each in (query for some in panels().values() for query in some if not query.why_not):
        assert any(
            all(dict(labels).get(key, "") == value or (not value and key in dict(labels)) for key, value in wanted)
            for scraped in found
            for labels in scraped.get(each.metric, {})
            for wanted in [each.labels.items()]
        ), each


def _the_cluster_is_counted_once(cluster: Cluster, found: list[dict[str, dict[Labels, float]]]) -> None:
    def values(name: str, **wanted: str) -> list[float]:
        return [
            value
            for scraped in found
            for labels, value in scraped.get(name, {}).items()
            if wanted.items() <= dict(labels).items()
        ]

    assert values("kafka_topic_partitions", topic="named") == [3]
    assert values("kafka_brokers") == [3] and len(values("kafka_broker_info")) == 3
    assert values("kafka_topic_partition_replicas", topic="named") == [3, 3, 3]
    assert values("kafka_topic_partition_under_replicated_partition", topic="named") == [0, 0, 0]
    assert values("kafka_topic_partition_leader", topic="named", partition="2") == [3]
    assert sum(values("kafka_topic_partition_current_offset", topic="named")) == 30
    assert sorted(values("kafka_consumergroup_lag", consumergroup="readers")) == [4, 5, 6]
    assert values("kafka_consumergroup_lag_sum", consumergroup="readers", topic="named") == [15]
    assert sum(values("kafka_server_brokertopicmetrics_messagesin_total", topic="named")) == 30
    assert sum(values("kafka_server_brokertopicmetrics_totalproducerequests_total", topic="named")) >= 3
    assert sum(values("kafka_controller_kafkacontroller_activecontrollercount")) == 1
    assert sorted(values("kafka_server_raftmetrics_current_state")) == [1, 1, 1]
    assert values("kafka_server_raftmetrics_current_state", current_state="leader") == [1]
    assert values("kafka_server_kafkaserver_brokerstate") == [3, 3, 3]
    for request in ("Produce", "Fetch", "FetchConsumer", "FetchFollower"):
        labels = {"request": request, "quantile": "0.99"}
        assert max(values("kafka_network_requestmetrics_totaltimems", **labels)) > 0


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
    followers = {"listener": "controller", "api": "FetchFollower", "phase": "total"}
    eventually(lambda: value(leads, "request_seconds_count", **followers) > 0, "fetches of the metadata log are seen")
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
                calls.request(ApiKey.METADATA, 9, asked)
        (sample,) = denial_family(node.broker.services.metrics).samples
        assert (sample.labels, sample.value) == ((("api", "Metadata"),), 2)
