"""The accuracy of quotas over half a minute; `test_quotas` has the short forms."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.support.clients.api_calls import fresh_name
from tests.support.clients.confluent import create_topic
from tests.support.clients.floods import flood
from tests.support.clients.quotas import set_quotas
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.only_ours, pytest.mark.slow]

MIB = 2**20
VALUE_BYTES = 10_000
WINDOW_S = 30


def test_a_producer_gets_its_quota_within_a_tenth(node: Node) -> None:
    topic, mine = fresh_name(), fresh_name("app")
    create_topic(node.bootstrap, topic)
    set_quotas(node.port, {"client-id": mine}, producer_byte_rate=MIB)
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": mine, "linger.ms": 5})
    acknowledged = [0]

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None
        acknowledged[0] += VALUE_BYTES

    ends = time.monotonic() + WINDOW_S
    while time.monotonic() < ends:
        if len(producer) < 500:
            producer.produce(topic, b"x" * VALUE_BYTES, on_delivery=on_delivery)
            producer.poll(0)
        else:
            producer.poll(0.01)
    rate = acknowledged[0] / WINDOW_S / MIB
    producer.purge()
    print(f"{rate:.3f} of the quota")
    assert 0.9 < rate < 1.1, rate


def test_a_consumer_gets_its_quota_within_a_tenth(node: Node) -> None:
    topic, mine = fresh_name(), fresh_name("app")
    create_topic(node.bootstrap, topic)
    filler = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(40 * MIB // VALUE_BYTES):
        filler.produce(topic, b"x" * VALUE_BYTES)
        if number % 1000 == 0:
            filler.flush(60)
    assert filler.flush(60) == 0
    set_quotas(node.port, {"client-id": mine}, consumer_byte_rate=MIB)
    settings = {"bootstrap.servers": node.bootstrap, "client.id": mine, "group.id": topic}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    first = consumer.poll(60)
    assert first is not None and first.error() is None
    count, ends = 1, time.monotonic() + WINDOW_S
    while time.monotonic() < ends:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            count += 1
    consumer.close()
    rate = count * VALUE_BYTES / WINDOW_S / MIB
    print(f"{rate:.3f} of the quota")
    assert 0.9 < rate < 1.1, rate


def test_a_flood_of_small_requests_gets_its_share_of_a_processor(node: Node) -> None:
    """The broker spends at most its quota on a flood; `bench.fairness_bench` measures the latency of other clients."""
    mine = fresh_name("flood")
    set_quotas(node.port, {"client-id": mine}, request_percentage=10)
    with flood(node.port, mine):
        time.sleep(3)  # it has begun, and what may be used at once is used up
        used_s = node.cpu_s()
        time.sleep(WINDOW_S)
        share = (node.cpu_s() - used_s) / WINDOW_S
    set_quotas(node.port, {"client-id": mine}, request_percentage=None)
    print(f"{share:.3f} of a processor")
    # A tenth, and the cost of sockets beside it.
    assert share < 0.3
