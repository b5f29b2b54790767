"""Topics that are deleted and made again under load while their logs are flushed, aged, and compacted on slow disks.

None of that is a fault of a disk: every node stays, and a recreated topic has what was written to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.confluent import read_all
from tests.support.disks.slow_sync import launcher
from tests.support.nodes.cluster import Cluster, topic_at
from tests.support.waiting import PATIENCE_S, eventually

LAST = 100
# The largest queue of each topic: a deleted topic blocks no other one, and the end need not wait for a long queue.
MOST_WAITING = 300
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": 50,
    "log.flush.scheduler.interval.ms": 50,
    "log.cleaner.backoff.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.segment.delete.delay.ms": 100,
    "offsets.topic.num.partitions": 1,
}
# A segment every few batches, so that one is always rolled and not yet flushed.
TOPICS = {
    "flushed": {"segment.ms": "100"},
    "aged": {"segment.ms": "100", "retention.bytes": "20000"},
    "compacted": {"segment.ms": "100", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}


class Load(threading.Thread):
    """Writes to all topics, whether they are there or not, for as long as the block lasts.

    When it ends, nothing of it is on its way: not to a topic that gets the name later.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._stopped = threading.Event()
        self._waiting = dict.fromkeys(TOPICS, 0)
        self.acknowledged = dict.fromkeys(TOPICS, 0)

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "linger.ms": 5,
                "batch.num.messages": 10,
                "retries": 0,
                "topic.metadata.refresh.interval.ms": 500,
                # Records of a topic that went may be left where neither a request nor a purge takes them.
                "message.timeout.ms": 30_000,
            }
        )
        number = 0
        while not self._stopped.is_set():
            for topic, waiting in self._waiting.items():
                if waiting < MOST_WAITING:
                    with suppress(KafkaException):  # the topic is known not to be there
                        producer.produce(topic, bytes(100), key=b"%d" % (number % 7), on_delivery=self._delivered)
                        self._waiting[topic] += 1
            number += 1
            producer.poll(0.005)
        producer.purge(in_flight=False)
        assert producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: object, message: Message) -> None:
        topic = message.topic() or ""
        self._waiting[topic] -= 1
        if error is None:
            self.acknowledged[topic] += 1

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


class Topics:
    """Creates and deletes the topics of a cluster: each once, even if a broker repeats its request."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        self._cluster = cluster
        self._ids: dict[str, object] = {}

    def make(self) -> None:
        copies = len(self._cluster.brokers)
        for name, configs in TOPICS.items():
            wanted = NewTopic(name, 1, copies, config=configs)
            self._unless_done(self._admin.create_topics([wanted])[name], KafkaError.TOPIC_ALREADY_EXISTS)
            self._ids[name] = eventually(partial(self._another_id, name))

    def _another_id(self, name: str) -> object:
        """The id of a topic, None where that is the one that was deleted or none."""
        found = topic_at(self._cluster.brokers[0], name)
        return None if found.error_code or found.topic_id == self._ids.get(name) else found.topic_id

    def delete(self) -> None:
        for future in self._admin.delete_topics(list(TOPICS)).values():
            self._unless_done(future, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def _unless_done(self, future: Future[None], code: int) -> None:
        """Await what was asked for; `code` says that an earlier controller has done it, and could not say so."""
        try:
            future.result(PATIENCE_S)
        except KafkaException as error:
            assert error.args[0].code() == code, error


@pytest.fixture
def cluster(nodes: int, delay_ms: int, tmp_path: Path) -> Iterator[Cluster]:
    with_slow_disks = Cluster(tmp_path, brokers=nodes, settings=SETTINGS)
    for node in with_slow_disks.nodes.values():
        node.launcher = launcher(delay_ms)
    with with_slow_disks:
        yield with_slow_disks


LONGER = [pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 200, 2), (3, 20, 4), (3, 200, 1))]


@pytest.mark.parametrize(("nodes", "delay_ms", "rounds"), [(1, 20, 4), (3, 20, 1), *LONGER])
def test_nodes_stay_and_topics_made_again_keep_their_records(cluster: Cluster, rounds: int) -> None:
    topics = Topics(cluster)
    topics.make()
    for _ in range(rounds):
        # Another producer each time: librdkafka's may not notice that a topic is back that was gone.
        with Load(cluster.bootstrap_servers) as load:
            eventually(lambda load=load: min(load.acknowledged.values()) > 200, lambda load=load: load.acknowledged)
            topics.delete()
            topics.make()
            assert all(node.running for node in cluster.brokers)
    topics.delete()
    topics.make()

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(LAST):
        producer.produce("flushed", b"%04d" % number + bytes(100))
    assert producer.flush(120) == 0
    found = [
        (message.value() or b"")[:4] for message in read_all(cluster.bootstrap_servers, "flushed", 1, timeout_s=120)
    ]
    assert found == [b"%04d" % number for number in range(LAST)]
    for node in cluster.brokers:
        assert node.running
        assert "offline" not in node.log_text()
