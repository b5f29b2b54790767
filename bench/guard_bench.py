"""The cost of permissions, quotas and metrics for a broker, in one run: `python -m bench.guard_bench`.

The same client of librdkafka produces and consumes on a broker without any of them and on one with an authorizer over
10,000 ACLs, quotas that are never reached, and metrics. The benchmark prints the processor time of the second broker as
a ratio to the first: 1.05 is 5 % more. Small requests show most: `one record per request` is 128 bytes with acks=1. The
cost of scrapes depends on time and not on load, and a cell would have more of them the slower its clients are: so they
have a line of their own, and no cell has any.

On a machine that others use, processor time varies by as much as a tenth from one measurement to the next. So each
measurement is short, both brokers are measured right after each other, and the printed ratio is the median of many such
pairs, with its 95 % confidence interval. `--instructions` prints the instructions that both brokers execute for one
request instead, in user space, if Valgrind is installed (`bench.instructions`): these numbers hardly vary.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.brokers import SETTINGS, Contestant
from bench.instructions import CountedNode, can_count
from bench.tls_bench import consume, measured, produce
from odradek.settings.formats import STANDARD_AUTHORIZER
from tests.support.clients.api_calls import Calls, batch, fetch_topic
from tests.support.clients.cli import odradek
from tests.support.nodes.node import Node, free_port

MIB = 2**20
ACLS = 10_000
# A client's requests depend on their number as little as on 10,000, which take long to create under Valgrind.
COUNTED_ACLS = 1000
PAIRS, QUICK_PAIRS = 60, 6
SCRAPES = 20
# The interval in Prometheus' documentation, and in docs/monitoring.md.
SCRAPE_EVERY_S = 15
# The records of one measurement: size in bytes and number.
SIZES = {1024: 20_000, 100 * 1024: 400}
SINGLE_RECORDS = 2_000
# The function of libuv that reads from a connection. All of these requests are answered before it returns.
READING = "uv__read"


def acl(number: int) -> AclBinding:
    """The ACL with this number: half of them are for a name, half for a prefix."""
    pattern = ResourcePatternType.PREFIXED if number % 2 else ResourcePatternType.LITERAL
    name = f"team{number % 1000}-{number}"
    return binding(ResourceType.TOPIC, name, pattern, f"User:u{number % 100}", AclOperation.READ)


def binding(
    kind: ResourceType, name: str, pattern: ResourcePatternType, principal: str, operation: AclOperation
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


def guard_settings(metrics_port: int) -> dict[str, object]:
    """The settings of a node with an authorizer and metrics."""
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "odradek.metrics.listener": f"127.0.0.1:{metrics_port}",
    }


def guard(node: Node, acls: int = ACLS) -> None:
    """Create the ACLs that allow the load, thousands of others, and quotas that the load does not reach."""
    literal, everybody = ResourcePatternType.LITERAL, "User:ANONYMOUS"
    mine = [
        binding(ResourceType.BROKER, "kafka-cluster", literal, everybody, AclOperation.ALL),
        binding(ResourceType.TOPIC, "t-", ResourcePatternType.PREFIXED, everybody, AclOperation.ALL),
        binding(ResourceType.GROUP, "bench", literal, everybody, AclOperation.ALL),
    ]
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    for first in range(0, acls, 1000):
        some = [acl(number) for number in range(first, first + 1000)] + (mine if first == 0 else [])
        for future in client.create_acls(some).values():
            future.result(120)
    odradek(
        node.bootstrap, "quotas", "set", "producer_byte_rate=1e12", "consumer_byte_rate=1e12",
        "request_percentage=1e6", "--default", "client-id",
    )  # fmt: skip


def produce_singly(topic: str, count: int, bootstrap: str) -> None:
    """Produce with one request for each record."""
    settings = {"acks": 1, "linger.ms": 0, "batch.num.messages": 1, "queue.buffering.max.messages": 5000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, bytes(128))
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def scrape_s(guarded: Contestant, port: int) -> tuple[float, int]:
    """The broker's processor seconds for one page of its metrics, and the number of lines of the page."""
    cpu_s, lines = guarded.cpu_s(), 0
    for _ in range(SCRAPES):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            lines = answer.read().count(b"\n")
    return (guarded.cpu_s() - cpu_s) / SCRAPES, lines


def main(*, quick: bool = False) -> None:
    """Print a line for each cell; `quick` measures a tenth of the pairs, for a first look."""
    with tempfile.TemporaryDirectory() as name:
        plain = Node(Path(name) / "plain", {**SETTINGS, "auto.create.topics.enable": "true"})
        metrics = free_port()
        guards = guard_settings(metrics)
        guarded = Node(Path(name) / "guarded", {**SETTINGS, "auto.create.topics.enable": "true", **guards})
        with plain, guarded:
            guard(guarded)
            second = Contestant("guarded", guarded)
            compare((Contestant("plain", plain), second), quick=quick)
            cost_s, lines = scrape_s(second, metrics)
            share = cost_s / SCRAPE_EVERY_S * 100
            print(
                f"a scrape: {cost_s * 1e3:.1f} ms for {lines} lines; one in {SCRAPE_EVERY_S} s: {share:.2f} % of a core"
            )


def compare(brokers: tuple[Contestant, Contestant], *, quick: bool) -> None:
    """Measure both in turns, each first as often as second; the first pair warms up."""
    ratios: dict[str, list[float]] = {}
    for pair in range((QUICK_PAIRS if quick else PAIRS) + 1):
        for what, (count, work) in cells().items():
            cost_s: dict[str, float] = {}
            for broker in brokers if pair % 2 else brokers[::-1]:
                cost_s[broker.name] = measured(broker, count, 1, partial(work, broker.bootstrap)).cpu_s
            without, guarded = (cost_s[broker.name] for broker in brokers)
            ratios.setdefault(what, []).append(guarded / without)
    for what, found in ratios.items():
        least, most = median_interval(found[1:])
        print(
            f"{what}: {statistics.median(found[1:]):.3f} of the processor time"
            f" (95 %: {least:.3f} to {most:.3f}, {len(found) - 1} pairs)"
        )


def cells() -> dict[str, tuple[int, Callable[[str], None]]]:
    """The number of records of each cell, and the work of a client for them. Reads use the same records each time."""
    found: dict[str, tuple[int, Callable[[str], None]]] = {}
    for size, count in SIZES.items():
        topic, name = f"t-{size}", f"{size // 1024} KiB"
        found[f"produce {name}"] = count, partial(write, topic, count, size)
        found[f"consume {name}"] = count, partial(read, topic, count)
    found["one record per request"] = SINGLE_RECORDS, partial(produce_singly, "t-single", SINGLE_RECORDS)
    return found


def write(topic: str, count: int, size: int, bootstrap: str) -> None:
    produce({"bootstrap.servers": bootstrap}, topic, count, size)


def read(topic: str, count: int, bootstrap: str) -> None:
    consume({"bootstrap.servers": bootstrap}, topic, count)


def median_interval(values: list[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median: two of the values, by their ranks."""
    ordered, count = sorted(values), len(values)
    # The number of values below the true median is binomial, with the deviation sqrt(count) / 2.
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[rank], ordered[count - 1 - rank]


class CountedReads(CountedNode):
    """Counts from the read of a request until its response is with the system, without periodic work."""

    within = READING


def print_instructions() -> None:
    """A line for each of four requests, on both brokers one after the other.

    Their sockets have room for a whole answer: otherwise a MiB goes out in five to nine parts, by chance, and each part
    costs as much as all quotas.
    """
    counted: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for guards in ({}, guard_settings(free_port())):
            settings = {**SETTINGS, "socket.send.buffer.bytes": 2 * MIB, **guards}
            with CountedReads(Path(name) / f"{len(guards)}", settings) as node:
                if guards:
                    guard(node, COUNTED_ACLS)
                with Calls(node.port) as calls:
                    for what, request in requests(calls).items():
                        counted.setdefault(what, []).append(node.per_request(request))
    for what, (without, with_guards) in counted.items():
        print(f"{what}: {with_guards:,.0f} instructions, {without:,.0f} without: {with_guards / without:.3f}")


def requests(calls: Calls) -> dict[str, Callable[[], object]]:
    """The counted requests, by name: Produce of one small record and of 100 KiB, Fetch of 100 KiB and of 1 MiB."""
    topic = calls.create_topic(name="t-counted")
    some = fetch_topic(topic, {0: 0}, max_bytes=MIB // 10)
    small, large = batch(bytes(128)), batch(*[bytes(1024)] * 100)
    return {
        "Produce of 128 bytes": lambda: calls.produce(topic, small, acks=1),
        "Produce of 100 KiB": lambda: calls.produce(topic, large),
        "Fetch of 100 KiB": lambda: calls.fetch(some),
        "Fetch of 1 MiB": lambda: calls.read(topic),
    }


if __name__ == "__main__":
    if "--instructions" not in sys.argv:
        main()
    elif can_count():
        print_instructions()
    else:
        sys.exit("Valgrind is not installed: apt-get install valgrind")
