"""Five brokers and five voters are restarted one by one while another is killed: no delivery fails, nothing is lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.chaos.load import Reader, Writer
from tests.chaos.verdict import verdict_of
from tests.support.clients.confluent import admin
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.waiting import PATIENCE_S

TOPIC = "kept"
PARTITIONS = 5
NODES = 5


@pytest.fixture
def fives(tmp_path: Path) -> Iterator[Cluster]:
    settings: dict[str, object] = {"offsets.topic.num.partitions": 1}
    with Cluster(tmp_path, brokers=NODES, controllers=NODES, settings=settings) as cluster:
        yield cluster


def set_retention(client: AdminClient, number: int) -> None:
    """A change of metadata: it needs the quorum. Sent again where the broker that was asked is the one that dies."""
    entry = ConfigEntry("retention.ms", str(number), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (future,) = client.incremental_alter_configs([resource], request_timeout=PATIENCE_S).values()
        try:
            future.result(PATIENCE_S)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TRANSPORT or time.monotonic() > deadline:
                raise


def in_sync(cluster: Cluster) -> None:
    await_in_sync(cluster.serving_brokers(), TOPIC, partitions=PARTITIONS, copies=NODES, timeout_s=PATIENCE_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_restarts_while_another_is_killed(fives: Cluster) -> None:
    chance = random.Random(7)
    client = admin(fives.bootstrap_servers)
    topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
    client.create_topics([topic])[TOPIC].result(PATIENCE_S)
    in_sync(fives)
    writers = [Writer(name, fives.bootstrap_servers, TOPIC, PARTITIONS) for name in ("a", "b")]
    reader = Reader(fives.bootstrap_servers, TOPIC, PARTITIONS)
    for thread in (*writers, reader):
        thread.start()
    try:
        pairs = zip(fives.brokers, fives.controllers, strict=True)
        for number, (broker, controller) in enumerate(pairs):
            killed = [
                chance.choice([node for node in nodes if node is not restarted])
                for nodes, restarted in ((fives.brokers, broker), (fives.controllers, controller))
            ]
            # Both stop cleanly at the same moment: the broker sends its requests to a quorum that has just lost a
            # voter.
            restarts = [threading.Thread(target=node.restart) for node in (broker, controller)]
            for thread in restarts:
                thread.start()
            for node in killed:
                node.kill()
            set_retention(client, 3_600_000 + number)
            for thread in restarts:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            for node in killed:
                node.start()
            fives.await_controller()
            in_sync(fives)
    except BaseException:
        for writer in writers:
            writer.end()
        reader.end()
        raise
    verdict = verdict_of(fives, TOPIC, writers, reader, healed_at=time.monotonic())
    assert verdict.problems == []
    assert verdict.acknowledged > 1000
