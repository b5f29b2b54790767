"""A thousand topics on one node: created, written, read, kept over a restart, with bounded descriptors and memory."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.support.clients.confluent import admin, read_all
from tests.support.nodes.node import Node

TOPICS = 1000


@pytest.mark.slow  # test_many_partitions is the short form
def test_a_thousand_topics(own_node: Node) -> None:
    names = [f"many-{number:04d}" for number in range(TOPICS)]
    client = admin(own_node.bootstrap)
    for start in range(0, TOPICS, 250):
        futures = client.create_topics([NewTopic(name, 1, 1) for name in names[start : start + 250]])
        for future in futures.values():
            future.result(timeout=120)
    producer = Producer({"bootstrap.servers": own_node.bootstrap, "acks": "all"})
    failed: list[str] = []
    for name in names:
        producer.produce(name, value=name, on_delivery=lambda error, _: failed.append(str(error)) if error else None)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed, failed[:3]

    own_node.kill()
    own_node.start()  # and fails where it hangs
    known = set(admin(own_node.bootstrap).list_topics(timeout=90).topics)
    assert set(names) <= known
    for name in names[::100]:
        assert [message.value() for message in read_all(own_node.bootstrap, name)] == [name.encode()]
    assert len(os.listdir(f"/proc/{own_node.pid}/fd")) < 600, "idle logs keep their files open"
    assert own_node.memory_bytes() < 400 * 2**20
