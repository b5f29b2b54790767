"""Measures of a cluster: functions of three nodes, an unused name, and seconds to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from bench.generator import run_load
from bench.trios import NODES, Trio, until

PARTITIONS = 3
# The bytes of a run: so few that the disks of three replicas can write them, and not only the page cache is measured.
LIMIT_BYTES = 400 << 20
LATENCY_RATE = 500
SEND_EVERY_S = 0.002
FILL_QUEUE_KB = 64 << 10

Measure = Callable[[Trio, str, float], float]


@dataclass(frozen=True)
class Cell:
    """One row of the table; `better` is higher or lower. `quick` cells are part of the quick form; those that are
    `once` are left out after the first round."""

    name: str
    unit: str
    better: str
    measure: Measure
    quick: bool = True
    once: bool = False


def throughput(program: Path, size: int, copies: int, acks: str, partitions: int = PARTITIONS) -> Measure:
    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, partitions, copies)
        options = {"size": size, "seconds": seconds, "partitions": partitions, "limit": LIMIT_BYTES}
        more = {"producer:acks": acks, "producer:message.max.bytes": 2_000_000}
        found = run_load(program, "produce", trio.bootstrap, name, {**options, **more})
        trio.delete(name)
        return found.records_per_s

    return measure


def latency(program: Path, size: int, copies: int, percentile: str) -> Measure:
    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, PARTITIONS, copies)
        options = {"size": size, "seconds": seconds, "partitions": PARTITIONS, "rate": LATENCY_RATE}
        found = run_load(program, "latency", trio.bootstrap, name, {**options, "producer:acks": "all"})
        trio.delete(name)
        return found.percentile_us("ack", percentile) / 1000

    return measure


def disk_price(copies: int) -> Measure:
    """Bytes on all disks for each byte of 10,000 records of 1 KB."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, PARTITIONS, copies)
        fill(trio, name, 10_000, 1024)
        found = trio.data_bytes(name) / (10_000 * 1024)
        trio.delete(name)
        return found

    return measure


class Pulse:
    """A producer that sends a small record every two milliseconds to a partition and notes when each was answered."""

    def __init__(self, trio: Trio, topic: str, partition: int = 0) -> None:
        self.acknowledged: list[float] = []
        self.failed: list[str] = []
        self._topic = topic
        self._partition = partition
        self._ended = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": trio.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 20,
        }
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pulse:
        self._thread.start()
        until(lambda: len(self.acknowledged) > 100, "records are acknowledged")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def first_after_s(self, moment: float) -> float:
        """Seconds from a moment to the first acknowledgement of a record that was sent after it."""
        return float(
            until(lambda: next((at for at in self.acknowledged if at > moment + 0.05), 0), "it goes on") - moment
        )

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two acknowledgements, the later after `since`; it waits for one more."""
        now = time.monotonic()
        until(lambda: self.acknowledged[-1] > now, "it goes on")
        return max(later - earlier for earlier, later in pairwise(tuple(self.acknowledged)) if later >= since)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._producer.produce(self._topic, b"x" * 100, partition=self._partition, on_delivery=self._answered)
            self._producer.poll(SEND_EVERY_S)
        self._producer.flush(60)

    def _answered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(time.monotonic())
        else:
            self.failed.append(str(error))


def failover(*, of_controller: bool) -> Measure:
    """kill -9 of a leader that is, or is not, the active controller too: to the first acknowledgement that follows."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        controller = trio.controller()
        leader = controller if of_controller else next(node_id for node_id in NODES if node_id != controller)
        _create_led_by(trio, name, leader)
        with Pulse(trio, name) as pulse:
            trio.kill(leader)
            found = pulse.first_after_s(time.monotonic())
        assert not pulse.failed, pulse.failed[:3]
        trio.launch(leader)
        trio.in_sync(name, len(NODES), 1)
        trio.delete(name)
        return found

    return measure


def clean_stop(trio: Trio, name: str, seconds: float) -> float:
    """The leader stops in good order: the longest wait for an acknowledgement meanwhile."""
    leader = next(node_id for node_id in NODES if node_id != trio.controller())
    _create_led_by(trio, name, leader)
    with Pulse(trio, name) as pulse:
        begun = time.monotonic()
        trio.stop_cleanly(leader)
        time.sleep(1)
        found = pulse.longest_gap_s(begun)
    assert not pulse.failed, pulse.failed[:3]
    trio.launch(leader)
    trio.in_sync(name, len(NODES), 1)
    trio.delete(name)
    return 1000 * found


def rolling_restart(trio: Trio, name: str, seconds: float) -> float:
    """Restart each node cleanly; return the longest wait of producers, of which each leader has one."""
    order = [[*NODES[index:], *NODES[:index]] for index in range(len(NODES))]
    topic = NewTopic(name, len(NODES), replica_assignment=order, config={"min.insync.replicas": "2"})
    trio.admin.create_topics([topic])[name].result(60)
    trio.in_sync(name, len(NODES), len(NODES))
    with ExitStack() as stack:
        pulses = [stack.enter_context(Pulse(trio, name, partition)) for partition in range(len(NODES))]
        begun = time.monotonic()
        for node_id in NODES:
            trio.stop_cleanly(node_id)
            trio.launch(node_id)
            trio.in_sync(name, len(NODES), len(NODES))
        time.sleep(1)
        found = max(pulse.longest_gap_s(begun) for pulse in pulses)
    assert not any(pulse.failed for pulse in pulses), [pulse.failed[:3] for pulse in pulses]
    trio.delete(name)
    return 1000 * found


def preferred_election(trio: Trio, name: str, seconds: float) -> float:
    """The leadership goes back to the preferred replica: the longest wait for an acknowledgement on the way."""
    leader = next(node_id for node_id in NODES if node_id != trio.controller())
    _create_led_by(trio, name, leader)
    trio.stop_cleanly(leader)
    until(lambda: trio.leader(name) != leader, "another leads")
    trio.launch(leader)
    trio.in_sync(name, len(NODES), 1)
    with Pulse(trio, name) as pulse:
        begun = time.monotonic()
        trio.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)]).result(60)
        time.sleep(1)
        found = pulse.longest_gap_s(begun)
    trio.delete(name)
    return 1000 * found


def election(trio: Trio, name: str, seconds: float) -> float:
    """kill -9 of the active controller: to the next topic that is created."""
    controller = trio.controller()
    trio.admin.list_topics(timeout=10)
    trio.kill(controller)
    begun = time.monotonic()
    attempt = 0

    def created() -> bool:
        nonlocal attempt
        attempt += 1
        topic = f"{name}-{attempt}"
        trio.admin.create_topics([NewTopic(topic, 1, 2)], request_timeout=2, operation_timeout=1)[topic].result(5)
        return True

    until(created, "a topic is created")
    found = time.monotonic() - begun
    trio.launch(controller)
    trio.whole()
    trio.delete(f"{name}-{attempt}")
    return found


def catch_up(size_bytes: int) -> Measure:
    """A follower is back and has missed so many bytes: megabytes a second until it is in sync, its start included."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        follower = next(node_id for node_id in NODES if node_id != trio.controller())
        leader = next(node_id for node_id in NODES if node_id != follower)
        _create_led_by(trio, name, leader)
        trio.stop_cleanly(follower)
        fill(trio, name, size_bytes // 10_000, 10_000)
        begun = time.monotonic()
        trio.launch(follower)
        trio.in_sync(name, len(NODES), 1)
        found = size_bytes / 1e6 / (time.monotonic() - begun)
        trio.delete(name)
        return found

    return measure


def published_shape(program: Path) -> Measure:
    """Twelve producers, then twenty-four consumers in one group, over 24 partitions of 128 B at RF 1, acks=1."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, 24, 1)
        options = {"size": 128, "seconds": seconds, "partitions": 24, "producer:acks": "1", "limit": LIMIT_BYTES / 12}
        with ThreadPoolExecutor(12) as pool:
            runs = list(pool.map(lambda _: run_load(program, "produce", trio.bootstrap, name, options), range(12)))
        written = sum(run.raw["acked"] for run in runs)
        begun = time.monotonic()
        read = _group_reads(trio, name, 24, written)
        # With acks=1 and without producer ids, records that were sent again are there twice, with any broker.
        assert read >= written, f"{read} of {written} were read"
        rate = sum(run.records_per_s for run in runs)
        trio.delete(name)
        return min(rate, read / (time.monotonic() - begun))

    return measure


def many_partitions(count: int) -> Measure:
    """The seconds from the request for `count` partitions of three replicas until all of them are in sync."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        begun = time.monotonic()
        trio.create(name, count, len(NODES))
        found = time.monotonic() - begun
        trio.delete(name)
        return found

    return measure


def many_failovers(count: int) -> Measure:
    """kill -9 of one of three nodes that share so many partitions: seconds until each has a leader that lives."""

    def measure(trio: Trio, name: str, seconds: float) -> float:
        trio.create(name, count, len(NODES))
        led, controller = trio.led_by(name), trio.controller()
        node_id = max((each for each in NODES if each != controller), key=lambda each: led.get(each, 0))
        assert led.get(node_id), "it leads nothing that others could take over"
        trio.kill(node_id)
        begun = time.monotonic()

        def all_led() -> bool:
            found = trio.admin.list_topics(name, timeout=10).topics[name].partitions
            return all(each.leader not in (-1, node_id) for each in found.values())

        until(all_led, "every partition has a leader")
        found = time.monotonic() - begun
        trio.launch(node_id)
        trio.in_sync(name, len(NODES), count)
        trio.delete(name)
        return found

    return measure


def fill(trio: Trio, topic: str, count: int, size: int) -> None:
    """Produce `count` records with acks=all."""
    settings: dict[str, Any] = {"bootstrap.servers": trio.bootstrap, "linger.ms": 20, "acks": "all", "log_level": 0}
    producer = Producer({**settings, "queue.buffering.max.kbytes": FILL_QUEUE_KB})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, bytes(size))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0


def _create_led_by(trio: Trio, name: str, leader: int) -> None:
    """A topic of one partition and three copies that a certain node leads."""
    order = [leader, *(node_id for node_id in NODES if node_id != leader)]
    config = {"min.insync.replicas": "2"}
    topic = NewTopic(name, 1, replica_assignment=[order], config=config)
    trio.admin.create_topics([topic])[name].result(60)
    trio.in_sync(name, len(NODES), 1)
    until(lambda: trio.leader(name) == leader, f"{leader} leads")


def _group_reads(trio: Trio, topic: str, members: int, count: int) -> int:
    """Records that one group of so many members reads in all, from the beginning."""
    counted = [0] * members

    def member(number: int) -> None:
        settings = {"bootstrap.servers": trio.bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while sum(counted) < count and time.monotonic() < deadline:
            counted[number] += sum(each.error() is None for each in consumer.consume(10_000, 0.2))
        consumer.close()

    threads = [threading.Thread(target=member, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counted)
