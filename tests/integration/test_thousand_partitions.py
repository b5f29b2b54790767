"""A thousand partitions of three copies: made, their leaders lost, and taken back, while no session is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import NewTopic

from odradek.testing.processes import NodeProcess
from tests.support.clients.confluent import admin
from tests.support.nodes.cluster import Cluster, await_in_sync, topic_at
from tests.support.waiting import eventually

TOPIC = "thousand"
PARTITIONS = 1000
COPIES = 3
PATIENCE_S = 240.0


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=COPIES) as cluster:
        yield cluster


def in_sync(cluster: Cluster) -> None:
    await_in_sync(cluster.serving_brokers(), TOPIC, partitions=PARTITIONS, copies=COPIES, timeout_s=PATIENCE_S)


def is_led_by_others(node: NodeProcess, victim: NodeProcess) -> bool:
    """Whether other brokers lead all partitions, as one broker knows it."""
    return all(each.leader_id not in (-1, victim.node_id) for each in topic_at(node, TOPIC).partitions)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_partitions_fail_over_and_are_replicated_again(trio: Cluster) -> None:
    client = admin(trio.bootstrap_servers)
    topic = NewTopic(TOPIC, PARTITIONS, COPIES, config={"min.insync.replicas": "2"})
    client.create_topics([topic], request_timeout=PATIENCE_S)[TOPIC].result(PATIENCE_S)
    in_sync(trio)
    for victim in trio.brokers[:2]:  # one of them may be the active controller, and both cannot be
        led = {each.partition_index for each in topic_at(victim, TOPIC).partitions if each.leader_id == victim.node_id}
        assert led, "it has leaders to lose"
        victim.kill()
        for node in trio.serving_brokers():
            eventually(partial(is_led_by_others, node, victim))
        victim.start()
        in_sync(trio)
        # The preferred leaders, so that the next one has some to lose.
        client.elect_leaders(ElectionType.PREFERRED, None).result(PATIENCE_S)
    for node in trio.brokers:
        assert "this broker was unregistered" not in node.log_text(), "a session ran out"
        assert "Traceback" not in node.log_text()
