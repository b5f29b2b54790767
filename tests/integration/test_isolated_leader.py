"""A leader that is cut off from its peers and the quorum, but not from its clients: they find the new leader."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from odradek.common.errors import ErrorCode
from odradek.testing.cluster import Cluster
from tests.support.clients.api_calls import Calls, batch
from tests.support.clients.confluent import create_topic, read_all
from tests.support.clients.steady_producer import Steady
from tests.support.waiting import PATIENCE_S, eventually

SETTINGS = {
    "min.insync.replicas": 2,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 2000,
    "replica.lag.time.max.ms": 2000,
}


def test_producers_leave_a_leader_that_is_cut_off(tmp_path: Path) -> None:
    with Cluster(3, settings=SETTINGS, directory=tmp_path) as cluster:
        create_topic(cluster.bootstrap_servers, "orders", copies=3)
        leader = eventually(lambda: max(cluster.leader("orders"), 0), "a busy machine fences brokers for a moment")
        alone = NewTopic("alone", 1, replica_assignment=[[leader]])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([alone])["alone"].result(PATIENCE_S)
        eventually(lambda: cluster.leader("alone") == leader)
        others = [node_id for node_id in cluster.node_ids if node_id != leader]
        with Steady(cluster.bootstrap_servers, "orders", 0) as writer, Calls(port_of(cluster, leader)) as calls:
            eventually(lambda: len(writer.acknowledged) > 20)
            cluster.partition([leader], others)
            # It refuses writes with acks=1, too: records that it accepted now would be lost.
            eventually(lambda: refused(calls, "orders"))
            before = len(writer.acknowledged)
            eventually(lambda: len(writer.acknowledged) > before + 50)
            assert not calls.produce("alone", batch(b"x"), acks=1).error_code, "no other replica can lead it"
            cluster.heal()
        assert not writer.errors
        values = {value for value, _ in writer.acknowledged}
        assert values <= {message.value() for message in read_all(cluster.bootstrap_servers, "orders")}


def test_a_quorum_that_is_down_stops_no_leader_whose_followers_fetch(tmp_path: Path) -> None:
    with Cluster(3, controllers=1, settings=SETTINGS, directory=tmp_path) as cluster:
        create_topic(cluster.bootstrap_servers, "orders", copies=3)
        leader = eventually(lambda: max(cluster.leader("orders"), 0), "a busy machine fences brokers for a moment")
        (controller,) = set(cluster.node_ids) - {1, 2, 3}
        with Steady(cluster.bootstrap_servers, "orders", 0) as writer, Calls(port_of(cluster, leader)) as calls:
            eventually(lambda: len(writer.acknowledged) > 20)
            cluster.kill(controller)
            before = len(writer.acknowledged)
            # More than two sessions.
            eventually(lambda: len(writer.acknowledged) > before + 250)
            assert not refused(calls, "orders")
            cluster.restart(controller)
        assert not writer.errors


def port_of(cluster: Cluster, node_id: int) -> int:
    return int(cluster.address(node_id).rpartition(":")[2])


def refused(calls: Calls, topic: str) -> bool:
    code = calls.produce(topic, batch(b"x"), acks=1).error_code
    assert code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return bool(code)
