"""A cluster whose nodes restart, and whose topics come and go, under clients that only want to go on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.load import Writer
from tests.support.clients.api_calls import Calls, batch
from tests.support.clients.confluent import admin, read_all
from tests.support.nodes.cluster import Cluster, await_in_sync, topic_at
from tests.support.waiting import eventually

PARTITIONS = 3
COPIES = 3
QUIET = {"log_level": 0, "topic.metadata.refresh.interval.ms": 500, "reconnect.backoff.max.ms": 200}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings: dict[str, object] = {"offsets.topic.num.partitions": 1, "auto.create.topics.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("trio"), brokers=3, settings=settings) as cluster:
        yield cluster
        assert not any("Traceback" in node.log_text() for node in cluster.nodes.values())


def make(cluster: Cluster, client: AdminClient, topic: str) -> None:
    new = NewTopic(topic, PARTITIONS, COPIES, config={"min.insync.replicas": "2"})
    client.create_topics([new])[topic].result(90)
    in_sync(cluster, topic)


def in_sync(cluster: Cluster, topic: str) -> None:
    await_in_sync(cluster.brokers, topic, partitions=PARTITIONS, copies=COPIES)


def leader_epochs(cluster: Cluster, topic: str) -> list[int]:
    """The leader epoch of each partition: how often its leader has changed."""
    return [each.leader_epoch for each in topic_at(cluster.brokers[0], topic).partitions]


def test_a_rolling_restart_moves_each_leader_once_and_refuses_no_request(trio: Cluster) -> None:
    client = admin(trio.bootstrap_servers)
    make(trio, client, "rolled")
    writer = Writer("w", trio.bootstrap_servers, "rolled", PARTITIONS)
    writer.start()
    try:
        for node in trio.brokers:
            before = leader_epochs(trio, "rolled")
            led = [
                each.partition_index
                for each in topic_at(trio.brokers[0], "rolled").partitions
                if each.leader_id == node.node_id
            ]
            node.restart()
            in_sync(trio, "rolled")
            wanted = [epoch + (number in led) for number, epoch in enumerate(before)]
            # The broker that is asked may hear of it last. One that led twice is never as wanted again.
            eventually(lambda wanted=wanted: leader_epochs(trio, "rolled") == wanted)
    finally:
        writer.end()
    assert not writer.refused and not writer.unanswered
    for number, acknowledged in writer.acknowledged.items():
        assert acknowledged == list(range(writer.sent[number])), "each once, in order"
    stored = sorted(message.value() or b"" for message in read_all(trio.bootstrap_servers, "rolled", PARTITIONS))
    assert stored == sorted(b"w:%d" % number for numbers in writer.acknowledged.values() for number in numbers)


def test_a_stopping_leader_closes_connections_and_refuses_no_request(trio: Cluster) -> None:
    """A refusal would make librdkafka wait for a second, if the new leader is not ready or others are in flight."""
    client = admin(trio.bootstrap_servers)
    make(trio, client, "left")
    leaving = next(node for node in trio.brokers if node.node_id == topic_at(node, "left").partitions[0].leader_id)
    answers: list[int] = []

    def write() -> None:
        with contextlib.suppress(OSError, EOFError), Calls(leaving.plan.port, timeout_s=150) as calls:
            while True:
                answers.append(calls.produce("left", batch(b"x")).error_code)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    eventually(lambda: len(answers) > 30)
    leaving.stop()
    for writer in writers:
        writer.join(180)
        assert not writer.is_alive()
    assert set(answers) == {0}
    leaving.start()
    in_sync(trio, "left")


class Reading(threading.Thread):
    """A member of a group that collects its records, also while the topic changes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        own: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"of-{topic}",
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer({**own, "enable.auto.commit": False, **QUIET})
        self._consumer.subscribe([topic])
        self._ended = threading.Event()
        self.values: list[bytes] = []

    def run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.values.append(message.value() or b"")
        self._consumer.close()

    def end(self) -> None:
        self._ended.set()
        self.join()


def test_a_recreated_topic_is_another_topic_for_every_client(trio: Cluster) -> None:
    """Records of one life, and no other, are in each; clients that ran all along write to and read from the new one."""
    client = admin(trio.bootstrap_servers)
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "message.timeout.ms": 60_000, **QUIET})
    make(trio, client, "again")
    reading = Reading(trio.bootstrap_servers, "again")
    reading.start()
    ids = set()
    try:
        for life in range(4):
            ids.add(topic_at(trio.brokers[0], "again").topic_id)
            wanted = sorted(b"%d:%d" % (life, number) for number in range(90))

            def landed(life: int = life, wanted: list[bytes] = wanted) -> bool:
                found = sorted(
                    message.value() or b"" for message in read_all(trio.bootstrap_servers, "again", PARTITIONS)
                )
                assert all(value.startswith(b"%d:" % life) for value in found), "of an earlier life"
                return sorted(set(found)) == wanted

            for number in range(90):
                _send(producer, "again", b"%d:%d" % (life, number), number % PARTITIONS)
            assert producer.flush(120) == 0
            eventually(landed)
            eventually(lambda wanted=wanted: set(wanted) <= set(reading.values))
            if life == 3:
                break
            client.delete_topics(["again"])["again"].result(90)
            make(trio, client, "again")
            for node in trio.brokers:
                eventually(lambda node=node: topic_at(node, "again").topic_id not in ids)
    finally:
        reading.end()
    assert len(ids) == 4
    for node in trio.brokers:
        logs = [path for path in node.plan.data_dir.glob("again-*") if not path.name.endswith("-delete")]
        assert len(logs) == PARTITIONS


def _send(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    """Send once more what a client was refused for a topic that it did not know for a moment."""
    answered: list[object] = []
    deadline = time.monotonic() + 60
    while True:
        answered.clear()
        try:
            producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: answered.append(error))
        except KafkaException:
            answered.append("not known")
        while not answered:
            producer.poll(0.05)
        if answered[0] is None:
            return
        assert time.monotonic() < deadline, answered
        time.sleep(0.05)
