"""Latency of one client beside a flood of tiny requests, in one run: `python -m bench.fairness_bench`.

One client sends one small request after the other, alternately alone and beside a client that floods the broker with
requests; first the flood has the quota `request_percentage=10`, then none. The benchmark prints the 99th percentile of
the latency alone and beside the flood, and their ratio: 2 is twice as long. The first second of the flood counts, too,
in which it uses up the quota of earlier windows. Its process has the lowest priority (`nice` 19): the benchmark
measures how the broker shares its time, and not how the machine shares its processors with the flooding client.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.metadata_request import MetadataRequest
from tests.support.clients.api_calls import Calls, batch
from tests.support.clients.floods import flood, latencies_ms
from tests.support.clients.quotas import set_quotas
from tests.support.nodes.node import Node

ROUNDS = 4
TURN_S = 2.5
FLOODER = "flooder"
PERCENTAGE = 10


def p99_ms(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def compare(node: Node, request: Callable[[], object]) -> tuple[float, float, float]:
    """The 99th percentile alone and beside the flood, in ms, and how much of a processor the broker took beside it."""
    alone: list[float] = []
    beside: list[float] = []
    used_s = 0.0
    for _ in range(ROUNDS):
        alone += latencies_ms(request, TURN_S)
        with flood(node.port, FLOODER):
            began_s = node.cpu_s()
            beside += latencies_ms(request, TURN_S)
            used_s += node.cpu_s() - began_s
    return p99_ms(alone), p99_ms(beside), used_s / (ROUNDS * TURN_S)


def main() -> int:
    """Print a line for each kind of request; return 1 if a client's latency more than doubles in spite of the quota."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as name, Node(Path(name), {}) as node, Calls(node.port) as calls:
        topic = calls.create_topic()
        one = batch(b"x" * 100)
        requests: dict[str, Callable[[], object]] = {
            "produce of one record": lambda: calls.produce(topic, one),
            "metadata": lambda: calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])),
        }
        for percentage in (PERCENTAGE, None):
            set_quotas(node.port, {"client-id": FLOODER}, request_percentage=percentage)
            quota = "no quota" if percentage is None else f"request_percentage={percentage}"
            for what, request in list(requests.items())[: 1 if percentage is None else 2]:
                alone, beside, share = compare(node, request)
                worst = max(worst, beside / alone if percentage else 0.0)
                print(
                    f"{what}, flood with {quota}: p99 {alone:.2f} ms alone, {beside:.2f} ms beside it,"
                    f" {beside / alone:.2f} times; the broker took {share:.0%} of a processor"
                )
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return int(worst > 2)


if __name__ == "__main__":
    sys.exit(main())
