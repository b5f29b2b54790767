"""The lag of groups as nodes export it, in records and in seconds, wherever their partitions are led."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.nodes.scrapes import ANY_PORT, metrics_address, scrape
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "orders"
PARTITIONS = 3
AGE_S = 3600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {**ANY_PORT, "offsets.topic.num.partitions": 3, "odradek.group.lag.interval.ms": 100}
    with Cluster(tmp_path_factory.mktemp("lag"), settings=settings) as made:
        created = ("topics", "create", "--topic", TOPIC, "--replica-assignment", "1:2:3,2:3:1,3:1:2")
        odradek(made.bootstrap_servers, *created)
        await_in_sync(made.brokers, TOPIC, partitions=PARTITIONS, copies=3)
        yield made


def of_group(cluster: Cluster, group: str, name: str) -> dict[tuple[str, int], float]:
    """(topic, partition) -> value, of whichever node has the group."""
    found: dict[tuple[str, int], float] = {}
    for node in cluster.serving_brokers():
        for labels, value in scrape(metrics_address(node)).get(f"odradek_group_lag_{name}", {}).items():
            of = dict(labels)
            if of["group"] == group:
                found[of["topic"], int(of["partition"])] = value
    return found


def commit(cluster: Cluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()], asynchronous=False
    )
    consumer.close()


def lags(cluster: Cluster, group: str, topic: str, *expected: int) -> None:
    wanted = {(topic, number): float(records) for number, records in enumerate(expected)}
    eventually(lambda: of_group(cluster, group, "records") == wanted, f"the lag of {group} is {expected}")


def exporters(cluster: Cluster, group: str) -> list[NodeProcess]:
    def shows(node: NodeProcess) -> bool:
        sums = scrape(metrics_address(node)).get("odradek_group_lag_sum_records", {})
        return any(("group", group) in labels for labels in sums)

    return [node for node in cluster.serving_brokers() if shows(node)]


def test_lag_is_known_in_records_and_seconds_of_all_leaders(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    began_ms = time.time_ns() // 1_000_000 - AGE_S * 1000
    for number in range(PARTITIONS):
        for record in range(10):
            # Each a batch of its own, and a hundred seconds younger.
            producer.produce(TOPIC, b"v", partition=number, timestamp=began_ms + record * 100_000)
            assert producer.flush(PATIENCE_S) == 0
    commit(cluster, "behind", TOPIC, {0: 0, 1: 4, 2: 9})
    commit(cluster, "done", TOPIC, dict.fromkeys(range(PARTITIONS), 10))
    lags(cluster, "behind", TOPIC, 10, 6, 1)
    lags(cluster, "done", TOPIC, 0, 0, 0)
    seconds = of_group(cluster, "behind", "seconds")
    for number, read in enumerate((0, 4, 9)):
        # The age is at least that of the record; the test itself takes some time.
        assert AGE_S - 100 * read <= seconds[TOPIC, number] < AGE_S - 100 * read + 2 * PATIENCE_S
    assert set(of_group(cluster, "done", "seconds").values()) == {0.0}
    (exporter,) = exporters(cluster, "behind")
    shown = scrape(metrics_address(exporter))
    assert shown["odradek_group_lag_sum_records"][frozenset({("group", "behind")})] == 17
    assert shown["odradek_group_lag_unknown"][frozenset()] == 0
    assert 0 <= shown["odradek_group_lag_age_seconds"][frozenset()] < PATIENCE_S

    commit(cluster, "behind", TOPIC, dict.fromkeys(range(PARTITIONS), 10))
    lags(cluster, "behind", TOPIC, 0, 0, 0)
    assert set(of_group(cluster, "behind", "seconds").values()) == {0.0}


def test_the_marker_of_a_transaction_is_no_lag(cluster: Cluster) -> None:
    odradek(cluster.bootstrap_servers, "topics", "create", "--topic", "paid", "--replica-assignment", "2:3:1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("paid", b"v", partition=0)
    producer.commit_transaction(PATIENCE_S)
    commit(cluster, "before", "paid", {0: 0})
    commit(cluster, "behind-record", "paid", {0: 1})
    lags(cluster, "before", "paid", 2)
    lags(cluster, "behind-record", "paid", 0)
    assert of_group(cluster, "behind-record", "seconds") == {("paid", 0): 0.0}


def test_another_coordinator_goes_on_when_one_dies(cluster: Cluster) -> None:
    commit(cluster, "moved", TOPIC, {0: 3, 1: 3, 2: 3})
    eventually(lambda: len(of_group(cluster, "moved", "records")) == PARTITIONS)
    (exporter,) = exporters(cluster, "moved")
    exporter.kill()
    eventually(lambda: len(of_group(cluster, "moved", "records")) == PARTITIONS, "all partitions have new leaders")
    assert exporters(cluster, "moved")[0] is not exporter
    lags(cluster, "moved", TOPIC, 7, 7, 7)
    exporter.start()
