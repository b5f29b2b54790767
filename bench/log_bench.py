"""How long a node needs until it serves again: after kill -9 with a large log, and with thousands of partitions.

python -m bench.log_bench start                      2 GB in one partition
python -m bench.log_bench start --partitions 4000    one batch in each of so many
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node import Node

VALUE_BYTES = 10_000


def fill(node: Node, topic: str, partitions: int, size_bytes: int) -> None:
    """Make a topic, and write so much into each partition, at least one record."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=120).values():
        made.result()
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": 1, "linger.ms": 20, "batch.size": 1_000_000})
    for partition in range(partitions):
        for _ in range(max(1, size_bytes // VALUE_BYTES)):
            while True:
                try:
                    producer.produce(topic, bytes(VALUE_BYTES), partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    if producer.flush(300):
        raise SystemExit("not everything was written")


def seconds_to_serve(node: Node, topic: str, partition: int) -> float:
    """From the start of the process until a record is acknowledged."""
    began = time.perf_counter()
    node.start()
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "reconnect.backoff.ms": 10})
    producer.produce(topic, b"again", partition=partition)
    if producer.flush(120):
        raise SystemExit("the node does not serve")
    return time.perf_counter() - began


def start(partitions: int, size_bytes: int, rounds: int) -> None:
    """Fill a node, then stop it in both ways and start it again, and print a line for each."""
    with tempfile.TemporaryDirectory() as directory, Node(Path(directory)) as node:
        fill(node, "bench", partitions, size_bytes)
        print(f"{partitions} partitions of {max(size_bytes, VALUE_BYTES) / 1e9:.2f} GB")
        for number in range(rounds):
            node.kill()
            print(
                f"  after kill -9 ({number + 1}): {seconds_to_serve(node, 'bench', partitions - 1):.2f} s", flush=True
            )
        began = time.perf_counter()
        node.stop()
        print(f"  a clean stop: {time.perf_counter() - began:.2f} s")
        print(f"  after it: {seconds_to_serve(node, 'bench', partitions - 1):.2f} s", flush=True)


def main() -> int:
    """Parse the command line and measure; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.log_bench", description="Measure the log.")
    parser.add_argument("what", choices=["start"])
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=2_000_000_000, help="in each partition, where there is one alone")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    start(arguments.partitions, arguments.bytes if arguments.partitions == 1 else 0, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
