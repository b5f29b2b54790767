"""The cluster that users start inside their own tests: replicated, with faults to switch on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from odradek.common.errors import ConfigError
from odradek.testing import AsyncCluster, Cluster
from tests.support.clients.api_calls import fresh_name
from tests.support.clients.confluent import produce_all, read_all
from tests.support.waiting import eventually

PATIENT: dict[str, Any] = {"operation_timeout": 90, "request_timeout": 100}


@pytest.fixture
def cluster(odradek_cluster: Cluster) -> Cluster:
    """The cluster of the plugin's fixture, as users get it."""
    return odradek_cluster


def create(cluster: Cluster, partitions: int = 1, replicas: int = 3) -> str:
    name = fresh_name()
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.create_topics([NewTopic(name, partitions, replicas)], **PATIENT)[name].result(timeout=120)
    # The node that is asked for the leader may learn of it later than the one that answered.
    eventually(lambda: all(cluster.leader(name, number) >= 0 for number in range(partitions)))
    return name


def records(start: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, f"value-{number}".encode()) for number in range(start, start + count)]


def values(cluster: Cluster, topic: str, partitions: int = 1) -> list[bytes]:
    return sorted(message.value() or b"" for message in read_all(cluster.bootstrap_servers, topic, partitions))


def test_acknowledged_records_outlive_the_leader(cluster: Cluster) -> None:
    topic = create(cluster)
    produce_all(cluster.bootstrap_servers, topic, records(0, 100), acks="all")
    leader = cluster.leader(topic)
    cluster.kill(leader)
    assert not cluster.is_running(leader)
    eventually(lambda: cluster.leader(topic) not in (-1, leader))
    produce_all(cluster.bootstrap_servers, topic, records(100, 100), acks="all")
    assert values(cluster, topic) == sorted(value or b"" for _, value in records(0, 200))


def test_the_fixture_gave_a_whole_cluster_again(cluster: Cluster) -> None:
    assert all(cluster.is_running(node_id) for node_id in cluster.node_ids)
    assert cluster.node_ids == [1, 2, 3]


def test_a_restart_keeps_everything(cluster: Cluster) -> None:
    topic = create(cluster, 3)
    produce_all(cluster.bootstrap_servers, topic, records(0, 50), acks="all")
    for node_id in cluster.node_ids:
        cluster.restart(node_id)
    # A leader that has just begun may not know yet that all of it was committed.
    eventually(lambda: len(values(cluster, topic, 3)) == 50)


def test_a_paused_node_answers_when_it_goes_on(cluster: Cluster) -> None:
    host, _, port = cluster.address(2).partition(":")
    cluster.pause(2)
    with socket.create_connection((host, int(port)), timeout=90) as sock:
        sock.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        cluster.resume(2)
        sock.settimeout(90)
        assert sock.recv(1)


def test_a_controller_that_is_cut_off_is_replaced(cluster: Cluster) -> None:
    controller = eventually(lambda: (found := cluster.controller()) > 0 and found)
    others = [node_id for node_id in cluster.node_ids if node_id != controller]
    cluster.partition([controller], others)
    client = AdminClient({"bootstrap.servers": ",".join(cluster.address(node_id) for node_id in others)})
    name = fresh_name()
    client.create_topics([NewTopic(name, 1, 2)], **PATIENT)[name].result(timeout=120)
    cluster.heal()
    eventually(lambda: cluster.leader(name) > 0)


def test_a_slow_disk_and_a_skewed_clock_harm_no_one(cluster: Cluster) -> None:
    cluster.slow_disk(1, 50)
    cluster.skew_clock(2, -3_600_000)
    cluster.skew_clock(3, 3_600_000)
    topic = create(cluster, 3)
    produce_all(cluster.bootstrap_servers, topic, records(0, 50), acks="all")
    assert len(values(cluster, topic, 3)) == 50


def test_a_node_that_stops_in_good_order_hands_its_leaders_over(cluster: Cluster) -> None:
    topic = create(cluster, 6)
    leaving = cluster.leader(topic, 0)
    cluster.shut_down(leaving)
    eventually(lambda: leaving not in {cluster.leader(topic, number) for number in range(6)})


def test_controllers_of_their_own_racks_and_settings(tmp_path: Path) -> None:
    settings = {"num.partitions": 7}
    with Cluster(2, controllers=1, racks=["a", "b"], settings=settings, directory=tmp_path) as cluster:
        assert cluster.node_ids == [1, 2, 1001]
        eventually(lambda: cluster.controller() == 1001)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("made-by-itself", b"x")
        assert producer.flush(90) == 0
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        def described() -> TopicMetadata:
            return client.list_topics("made-by-itself", timeout=90).topics["made-by-itself"]

        eventually(
            lambda: described().partitions
        )  # the broker that is asked may hear of it later than the one that leads
        topic = described()
        assert len(topic.partitions) == 7
        assert all(len(partition.replicas) == 2 for partition in topic.partitions.values())
    assert (tmp_path / "node-1" / "data" / "meta.properties").exists()
    with Cluster(2, controllers=1, directory=tmp_path) as again:
        eventually(lambda: again.leader("made-by-itself") > 0)


async def test_the_same_for_coroutines() -> None:
    async with AsyncCluster(brokers=3) as cluster:
        topic = create(cluster.cluster)
        leader = cluster.leader(topic)
        await cluster.kill(leader)
        await asyncio.to_thread(eventually, lambda: cluster.leader(topic) != leader)
        await cluster.restart(leader)
        await cluster.restore()


def test_a_cluster_that_cannot_be_is_refused() -> None:
    for brokers, controllers in ((0, 0), (1, 2)):
        with pytest.raises(ConfigError):
            Cluster(brokers, controllers=controllers).start()
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Cluster(1, settings={"num.partitions": "many"}).start()
