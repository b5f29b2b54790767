"""kill -9 while producers write: every acknowledged record is found again, in order, once."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from tests.support.clients.confluent import Acknowledged, create_topic, read_all
from tests.support.nodes.node import Node

PARTITIONS = 3
KILLS = 3
MAX_UNANSWERED = 50_000


def write_until(stop: threading.Event, bootstrap: str, name: str, reported: Acknowledged) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
            "message.timeout.ms": 120_000,
        }
    )
    number = 0
    while not stop.is_set():
        for _ in range(50):
            partition = number % PARTITIONS
            producer.produce("load", f"{name}:{number:08d}", partition=partition, on_delivery=reported.on_delivery)
            number += 1
        producer.poll(0.005)
        while len(producer) > MAX_UNANSWERED:  # the node is down, perhaps for long
            producer.poll(0.1)
    assert producer.flush(90) == 0, "records were neither acknowledged nor refused"


def test_every_acknowledged_record_is_there_in_order_once(own_node: Node) -> None:
    create_topic(own_node.bootstrap, "load", PARTITIONS)
    reported = {name: Acknowledged() for name in ("a", "b")}
    stop = threading.Event()
    writers = [
        threading.Thread(target=write_until, args=(stop, own_node.bootstrap, name, reported[name])) for name in reported
    ]
    for writer in writers:
        writer.start()
    try:
        for _ in range(KILLS):
            time.sleep(1.5)
            own_node.kill()
            own_node.start()
        time.sleep(1.0)
    finally:
        stop.set()
        for writer in writers:
            writer.join(180)

    found: dict[bytes, tuple[int, int]] = {}
    order: dict[tuple[str, int], list[int]] = {}
    for message in read_all(own_node.bootstrap, "load", PARTITIONS, timeout_s=120):
        value = message.value()
        assert isinstance(value, bytes)
        assert value not in found, f"{value!r} is stored twice: {found[value]} and {message.offset()}"
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        found[value] = (partition, offset)
        name, number = value.decode().split(":")
        order.setdefault((name, partition), []).append(int(number))

    for name, acknowledged in reported.items():
        assert not acknowledged.refused, acknowledged.refused[:3]
        assert len(acknowledged.values) > 1000, f"writer {name} hardly wrote: this run proves nothing"
        lost = [value for value in acknowledged.values if value not in found]
        assert not lost, f"{len(lost)} acknowledged records are gone, first {lost[:3]}"
        moved = [value for value, place in acknowledged.values.items() if found[value] != place]
        assert not moved, f"{len(moved)} records are not where they were acknowledged, first {moved[:3]}"
    for (name, partition), numbers in order.items():
        assert numbers == sorted(numbers), f"writer {name} is out of order in partition {partition}"
