"""The disk of one broker of three is full: others lead what it cannot write, and it takes part again when it can."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import NewTopic

from odradek.common.errors import ErrorCode
from odradek.testing.processes import NodeProcess
from tests.support.clients.api_calls import Calls, batch, values_in
from tests.support.clients.confluent import admin, create_topic, read_all
from tests.support.clients.steady_producer import Steady
from tests.support.nodes.cluster import Cluster, await_in_sync, small_disks, topic_at
from tests.support.waiting import PATIENCE_S, eventually

MIB = 1 << 20
SETTINGS = {"min.insync.replicas": 2, "num.partitions": 6}


def leaders(node: NodeProcess, topic: str) -> dict[int, int]:
    """The leader of each partition, as this broker knows it."""
    return {each.partition_index: each.leader_id for each in topic_at(node, topic).partitions}


def lonely_topic(cluster: Cluster, node_id: int) -> str:
    """A topic whose only replica is on this broker."""
    name = "lonely"
    topic = NewTopic(name, num_partitions=1, replica_assignment=[[node_id]])
    client = admin(cluster.bootstrap_servers)
    client.create_topics([topic])[name].result(PATIENCE_S)
    eventually(lambda: leaders(cluster[node_id], name) == {0: node_id}, "it leads its topic")
    return name


def prefer(cluster: Cluster, topic: str, partition: int) -> KafkaError | None:
    """Ask for the preferred leader; returns why it was not elected."""
    client = admin(cluster.bootstrap_servers)
    wanted = TopicPartition(topic, partition)
    return client.elect_leaders(ElectionType.PREFERRED, [wanted]).result(60)[wanted]  # type: ignore[no-any-return]  # the client has no types here


def test_others_lead_what_a_full_broker_cannot_write_until_it_can(tmp_path: Path) -> None:
    with small_disks(tmp_path, 16 * MIB, SETTINGS) as (cluster, ballasts):
        create_topic(cluster.bootstrap_servers, "orders", partitions=6, copies=3)
        await_in_sync(cluster.brokers, "orders", partitions=6, copies=3)
        full = next(node.node_id for node in cluster.brokers if node.node_id != cluster.await_controller())
        other = next(node for node in cluster.brokers if node.node_id != full)
        lonely = lonely_topic(cluster, full)
        led = [partition for partition, leader in leaders(other, "orders").items() if leader == full]
        with Calls(cluster[full].plan.port) as calls, Steady(cluster.bootstrap_servers, "orders", led[0]) as writer:
            assert not calls.produce(lonely, batch(b"kept")).error_code
            eventually(lambda: len(writer.acknowledged) > 20)
            lines_before = cluster[full].log_text().count("\n")
            ballasts[full].fill()
            began_s = time.monotonic()
            # Partitions with no other replica stay where they are: writes are refused for want of space, reads served.
            eventually(lambda: calls.produce(lonely, batch(bytes(9000))).error_code == ErrorCode.KAFKA_STORAGE_ERROR)
            eventually(lambda: full not in leaders(other, "orders").values())
            eventually(lambda: writer.count_since(began_s) > 100)
            print(f"the longest time without an acknowledgement: {writer.longest_gap_s(began_s):.2f} s")
            assert leaders(other, lonely) == {0: full}
            assert values_in(calls.read(lonely, 0).records)[0] == b"kept"
            eventually(lambda: all(full not in each.isr_nodes for each in topic_at(other, "orders").partitions))
            # Nothing gives it leadership meanwhile: not who asks for preferred leaders, no new topic.
            refusal = prefer(cluster, "orders", led[0])
            assert refusal is not None
            assert refusal.code() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, refusal
            create_topic(cluster.bootstrap_servers, "while-full", partitions=6, copies=3)
            assert full not in leaders(other, "while-full").values()
            lines = cluster[full].log_text().count("\n") - lines_before
            print(f"{lines} lines in the log of the full broker in {time.monotonic() - began_s:.1f} s")
            ballasts[full].release()
            await_in_sync(cluster.brokers, "orders", partitions=6, copies=3)
            await_in_sync(cluster.brokers, "while-full", partitions=6, copies=3)
            assert prefer(cluster, "orders", led[0]) is None
            assert leaders(other, "orders")[led[0]] == full
            eventually(lambda: not calls.produce(lonely, batch(b"again")).error_code)
        assert not writer.errors
        values = {value for value, _ in writer.acknowledged}
        assert values <= {message.value() for message in read_all(cluster.bootstrap_servers, "orders", 6)}
        text = cluster[full].log_text()
    assert text.count("log directory is full") == text.count("log directory has space again") == 1
    assert lines < 40
    assert "Traceback" not in text
