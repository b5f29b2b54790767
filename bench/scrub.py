"""The share of a core that the background scrub takes, with default settings.

python -m bench.scrub                        20 s of each: no scrub, small batches, large batches
python -m bench.scrub --seconds 60

A node is filled and left alone. Its first pass begins at once, and does not end during the measurement. The share is
the processor time of the process, less that of a node with as many segments that does not scrub.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.support.clients.confluent import create_topic
from tests.support.nodes.node import Node

MIB = 1 << 20
# A batch for each record, and many records in one batch.
SHAPES = {"batches of 100 B": (100, 1), "batches of 1 KB": (1000, 1), "batches of 100 KB": (1000, 100)}
SETTLE_S = 3.0


def fill(node: Node, record_bytes: int, per_batch: int, total_bytes: int) -> None:
    create_topic(node.bootstrap, "kept", segment_bytes=4 * MIB)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "batch.num.messages": per_batch, "linger.ms": 0 if per_batch == 1 else 50}
    )
    for _ in range(total_bytes // (record_bytes + 70)):
        while len(producer) > 20_000:
            producer.poll(0.05)
        producer.produce("kept", bytes(record_bytes))
    producer.flush()


def share(record_bytes: int, per_batch: int, seconds: float, *, scrubs: bool) -> float:
    """The part of a core that a node takes that is left alone."""
    # Enough bytes that a pass does not end, even at the speed of large batches.
    total = int(min(4 * MIB * (seconds + 3 * SETTLE_S), 5e5 * per_batch * record_bytes))
    with tempfile.TemporaryDirectory() as directory:
        settings = {"odradek.log.scrub.enable": str(scrubs).lower(), "odradek.log.scrub.interval.ms": 100}
        with Node(Path(directory), settings) as node:
            fill(node, record_bytes, per_batch, total)
            time.sleep(SETTLE_S)
            before = node.cpu_s()
            time.sleep(seconds)
            return (node.cpu_s() - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each node is watched")
    seconds = parser.parse_args().seconds
    print("| log of | of a core, idle | with the scrub | the scrub alone |\n|---|---|---|---|")
    for name, (record_bytes, per_batch) in SHAPES.items():
        idle, scrubbing = (share(record_bytes, per_batch, seconds, scrubs=scrubs) for scrubs in (False, True))
        print(f"| {name} | {idle:.2%} | {scrubbing:.2%} | {scrubbing - idle:.2%} |", flush=True)


if __name__ == "__main__":
    main()
