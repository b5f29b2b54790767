"""The longest wait of one client while others create, write and delete thousands of partitions on the same node.

python -m bench.stalls                       4,000 partitions: made, written, read, killed, deleted
python -m bench.stalls --partitions 1000

A client sends one record after the other to a topic of its own, on one connection, all the time. Its longest wait for
an acknowledgement is the longest stall of the node's event loop, and of a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.api_calls import Calls, batch
from tests.support.nodes.node import Node

MANY = "many"
OTHER = "other"
PAUSE_S = 0.002
TIMEOUT_S = 120
SETTINGS: dict[str, object] = {
    "log.segment.delete.delay.ms": 1000,
    "log.retention.check.interval.ms": 3000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
}


@dataclass(slots=True)
class Phase:
    """The other client's wait, in ms, while one thing happened, and how long that took in seconds."""

    name: str
    waits_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def row(self) -> str:
        waits = sorted(self.waits_ms) or [0.0]
        p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
        return f"| {self.name} | {self.seconds:.1f} | {statistics.median(waits):.1f} | {p99:.1f} | {waits[-1]:.0f} |"


class Probe:
    """The client that waits. Its thread ends when a connection does: each start of the node has a new one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self.phase = Phase("before all")
        self._thread = threading.Thread(target=self._run, name="probe")

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with Calls(self._port) as calls:
            while not self._stopping.is_set():
                phase, began = self.phase, time.perf_counter()
                calls.produce(OTHER, batch(b"x" * 100), acks=1)
                phase.waits_ms.append((time.perf_counter() - began) * 1000)
                time.sleep(PAUSE_S)

    @contextmanager
    def during(self, name: str) -> Iterator[Phase]:
        """Count what is waited for under a name; says it at the end."""
        self.phase, began = Phase(name), time.perf_counter()
        yield self.phase
        self.phase.seconds = time.perf_counter() - began
        print(self.phase.row(), flush=True)


def create(node: Node, partitions: int) -> None:
    """Create all partitions in one request."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for made in admin.create_topics([NewTopic(MANY, partitions, 1)], request_timeout=TIMEOUT_S).values():
        made.result(TIMEOUT_S)


def write(node: Node, partitions: int) -> None:
    """A record to each."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "linger.ms": 5})
    for partition in range(partitions):
        producer.produce(MANY, b"v" * 100, partition=partition)
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not everything was written")


def read(node: Node, partitions: int) -> None:
    """Read a record of each partition, with one consumer of all of them."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "all", "enable.auto.commit": False})
    consumer.assign([TopicPartition(MANY, partition, 0) for partition in range(partitions)])
    left, deadline = set(range(partitions)), time.monotonic() + TIMEOUT_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            left.discard(message.partition())
    consumer.close()
    if left:
        raise SystemExit(f"{len(left)} partitions were not read")


def list_topics(node: Node, _: int) -> None:
    """Request the metadata of every partition several times, each time with a new client."""
    for _ in range(5):
        AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=TIMEOUT_S)


def delete(node: Node, _: int) -> None:
    """Delete the topic, and wait until its files are gone."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([MANY], request_timeout=TIMEOUT_S)[MANY].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while any(node.data_dir.glob(f"{MANY}-*")) and time.monotonic() < deadline:
        time.sleep(0.2)


def rest(_: Node, __: int) -> None:
    """Wait, so that retention, checkpoints and flushes run."""
    time.sleep(8)


def measure(node: Node, partitions: int) -> float:
    """Print a row for each thing that happens; returns the longest wait of all, in ms."""
    steps: list[tuple[str, Callable[[Node, int], None]]] = [
        ("made in one request", create),
        ("a record written to each", write),
        ("a record read of each", read),
        ("metadata of all, five times", list_topics),
        ("left alone", rest),
    ]
    print("| what happens | s | median ms | p99 ms | longest ms |\n|---|---|---|---|---|")
    worst = 0.0
    with Calls(node.port) as calls:
        calls.create_topic(name=OTHER)
    with Probe(node.port) as probe:
        for name, step in steps:
            with probe.during(name) as phase:
                step(node, partitions)
            worst = max(worst, *phase.waits_ms)
    node.kill()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(OTHER, 1)
    with Probe(node.port) as probe:
        for name, step in (("after kill -9, from the first answer on", rest), ("deleted", delete)):
            with probe.during(name) as phase:
                step(node, partitions)
            worst = max(worst, *phase.waits_ms)
    return worst


def main() -> int:
    """Parse the command line and measure; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description="Measure what others wait for.")
    parser.add_argument("--partitions", type=int, default=4000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Node(Path(directory), SETTINGS) as node:
        print(f"longest: {measure(node, arguments.partitions):.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
