"""The cost of validating every record of producers: one node that does, one that trusts its producers.

python -m bench.validation                   two minutes
python -m bench.validation --seconds 0.5     a first look

One client sends the same batch over and over, five requests on their way, to either node in turns. The batches are made
before, so that the client costs little; its share of the machine is the same with both. Rates and ratio are medians of
the rounds, the ratio of one round's. `looked at` is how long the
look takes in this process, without any broker, for a whole batch and for one record.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.protocol.apis import ApiKey
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.record.validation import BatchRules, validate_produced
from tests.support.clients.api_calls import Calls, produce_request
from tests.support.nodes.node import Node

VERSION = 11
ON_THEIR_WAY = 5
ROUNDS = 7
TRUSTING = {"odradek.trust.producers": "true"}


@dataclass(frozen=True)
class Shape:
    """A batch to send."""

    name: str
    count: int
    size: Callable[[random.Random], int]
    compression: str = "none"

    def batch(self) -> bytes:
        rng = random.Random(7)
        words = [rng.randbytes(5).hex().encode() for _ in range(200)]
        now_ms = time.time_ns() // 1_000_000
        values = [b" ".join(rng.choices(words, k=200))[: self.size(rng)] for _ in range(self.count)]
        records = [Record(None, value, timestamp_ms=now_ms + index // 100) for index, value in enumerate(values)]
        return build_batch(records, compression=self.compression)


SHAPES = (
    Shape("16 KB, 160 records of 100 bytes", 160, lambda rng: 100),
    Shape("16 KB, 160 records of 50 to 150 bytes", 160, lambda rng: rng.randrange(50, 151)),
    Shape("100 KB, 1,000 records of 100 bytes", 1000, lambda rng: 100),
    Shape("100 KB, 1,000 records of 50 to 150 bytes", 1000, lambda rng: rng.randrange(50, 151)),
    Shape("the same in lz4", 1000, lambda rng: rng.randrange(50, 151), "lz4"),
    Shape("the same in zstd", 1000, lambda rng: rng.randrange(50, 151), "zstd"),
    Shape("1 MB, 10,000 records of 50 to 150 bytes", 10_000, lambda rng: rng.randrange(50, 151)),
    Shape("1 MB, 1,000 records of 1 KB", 1000, lambda rng: 1000),
    Shape("the same in zstd", 1000, lambda rng: 1000, "zstd"),
)


def rate(calls: Calls, topic: str, batch: bytes, count: int, seconds: float) -> float:
    """Records per second that the node acknowledged."""
    request = produce_request(topic, batch, acks=1)
    start, sent, answered = time.perf_counter(), 0, 0
    while time.perf_counter() - start < seconds or answered < sent:
        while sent - answered < ON_THEIR_WAY and time.perf_counter() - start < seconds:
            calls.send(ApiKey.PRODUCE, VERSION, request)
            sent += 1
        answer = calls.receive(ApiKey.PRODUCE, VERSION)
        assert not answer.responses[0].partition_responses[0].error_code, answer
        answered += 1
    return answered * count / (time.perf_counter() - start)


def validation_us(batch: bytes, *, trusted: bool) -> float:
    """Microseconds of the check alone."""
    rules = BatchRules(trusted=trusted, max_message_bytes=len(batch))
    now_ms = time.time_ns() // 1_000_000
    timer = timeit.Timer(lambda: validate_produced(batch, rules, now_ms=now_ms))
    count, _ = timer.autorange()
    return min(timer.repeat(3, max(1, count // 4))) / max(1, count // 4) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.validation")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round")
    options = parser.parse_args()
    print("| batch | looked at: us, ns a record | header alone: us | records/s with | records/s without | ratio |")
    print("|---|---|---|---|---|---|")
    for shape in SHAPES:
        batch = shape.batch()
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            rates: dict[str, list[float]] = {"with": [], "without": []}
            clients = {}
            for name, settings in (("with", {}), ("without", TRUSTING)):
                retention = {"log.retention.check.interval.ms": 500, "log.retention.bytes": 1 << 26}
                node = stack.enter_context(Node(Path(folder) / name, {**retention, **settings}))
                calls = stack.enter_context(Calls(node.port))
                limits: dict[str, Any] = {"max_message_bytes": len(batch) + 100, "segment_bytes": 1 << 25}
                clients[name] = calls, calls.create_topic(**limits)
            for _ in range(ROUNDS):
                for name, (calls, topic) in clients.items():
                    rates[name].append(rate(calls, topic, batch, shape.count, options.seconds))
        middle = {name: statistics.median(values) for name, values in rates.items()}
        ratio = statistics.median(one / other for one, other in zip(rates["with"], rates["without"], strict=True))
        looked, header = validation_us(batch, trusted=False), validation_us(batch, trusted=True)
        print(
            f"| {shape.name} | {looked:.0f}, {(looked - header) / shape.count * 1000:.0f} | {header:.1f} "
            f"| {middle['with']:,.0f} | {middle['without']:,.0f} | {ratio:.2f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
