"""The longest wait of the console's pages for a cluster with 10,000 topics of 100 partitions.

python -m bench.console_bench                       a million partitions, three replicas each, on twenty brokers
python -m bench.console_bench --topics 1000

The pages and their server are the console's own, in this process. The answers of the cluster are generated, and change
from snapshot to snapshot; the console computes everything from them, on its usual thread. A task on the event loop of
the pages sleeps 2 ms again and again: its largest delay is the time that a browser waits. The processor time of its
longest callback is the cost of the page itself, also on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import httpx
import uvicorn

from odradek.admin.directories import Directory
from odradek.client.cluster import Cluster
from odradek.console import serve, watch
from odradek.console.clusters import single_cluster
from odradek.console.garbage import without_full_collections
from odradek.console.kafka_thread import KafkaThread
from odradek.console.snapshot import GroupState, Snapshot
from odradek.console.watch import Watch
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker
from odradek.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
from tests.support.clients.live_page import live_page
from tests.support.nodes.node import free_port

BROKERS, REPLICAS, GROUPS = 20, 3, 200
LOOK_EVERY_S = 5.0
WATCHED_S = 20.0
SLEEP_S = 0.002
PAGES = {
    "Overview": ("", "partitions"),
    "Topics": ("/topics", "topic-00000"),
    "one topic": ("/topics/topic-00001", "cannot be shown"),
    "Leaders and replicas": ("/replication", "topic-00000-0"),
    "Moves of replicas": ("/moves", "Nothing moves."),
    "Groups": ("/groups", "group-000"),
    "Brokers": ("/brokers", "broker1"),
}


class GeneratedWatch(Watch):
    """Looks at nothing; each look has more records than the one before."""

    def __init__(self, topics: int, partitions: int) -> None:
        (config,) = single_cluster("127.0.0.1:1", {}, may_change=False).values()
        super().__init__(config, every_s=LOOK_EVERY_S)
        self._generated = _generated(topics, partitions)
        self.took_s: list[float] = []

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began_s = time.monotonic()
            await self._refresh(None)  # type: ignore[arg-type]  # the tick does not use it
            self.took_s.append(time.monotonic() - began_s)
            await asyncio.sleep(max(self.every_s, self.took_s[-1] / watch.BUSY_SHARE))

    async def looked_twice(self) -> None:
        """Wait until there are rates. From another loop than that of the watch."""
        while len(self.took_s) < 2:  # noqa: ASYNC110 - an event is of one loop
            await asyncio.sleep(0.1)

    def next(self, number: int) -> Snapshot:
        """One look."""
        before = self._generated
        # This creates as many objects as a decoded response, and those of the last snapshot are freed.
        topics = {
            name: changed(topic, partitions=[_again(each) for each in topic.partitions])
            for name, topic in before.topics.items()
        }
        ends = {(name, index): end + 100 for (name, index), end in before.ends.items()}
        self._generated = changed(before, number=number, at_s=time.monotonic(), topics=topics, ends=ends)
        return self._generated


def _again(each: MetadataResponsePartition) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=each.partition_index,
        leader_id=each.leader_id,
        replica_nodes=[*each.replica_nodes],
        isr_nodes=[*each.isr_nodes],
        offline_replicas=[],
    )


def _generated(topics: int, partitions: int) -> Snapshot:
    replicas = [[1 + (at + step) % BROKERS for step in range(REPLICAS)] for at in range(BROKERS)]
    named: dict[str, MetadataResponseTopic] = {}
    sizes: dict[int, dict[tuple[str, int], int]] = {broker: {} for broker in range(1, BROKERS + 1)}
    ends: dict[tuple[str, int], int] = {}
    for at in range(topics):
        name = f"topic-{at:05}"
        of_topic = []
        for index in range(partitions):
            nodes = replicas[(at + index) % BROKERS]
            in_sync = nodes[:2] if (at, index) in ((0, 0), (1, 1)) else nodes
            of_topic.append(
                MetadataResponsePartition(
                    partition_index=index, leader_id=nodes[0], replica_nodes=nodes, isr_nodes=in_sync
                )
            )
            key = (name, index)
            ends[key] = 1_000_000
            for node in nodes:
                sizes[node][key] = 1_000_000_000
        named[name] = MetadataResponseTopic(name=name, partitions=of_topic)
    keys = list(ends)
    groups = {
        f"group-{at:03}": GroupState(
            "consumer", "Stable", dict.fromkeys(keys[at * 100 : at * 100 + 1000], 999_000), 1000
        )
        for at in range(GROUPS)
    }
    brokers = {
        each: DescribeClusterBroker(broker_id=each, host=f"broker{each}", port=9092, rack="abc"[each % 3])
        for each in sizes
    }
    directories = {each: [Directory(f"/data/{each}", False, 1 << 44, 1 << 43, of)] for each, of in sizes.items()}
    return Snapshot(0, 0.0, 0, brokers=brokers, topics=named, directories=directories, ends=ends, groups=groups)


@dataclass(slots=True)
class Lateness:
    """The delays of the event loop, in ms, since they were read last."""

    late_ms: list[float] = field(default_factory=list)
    collections_s: list[float] = field(default_factory=list)
    longest_turn_s: float = 0.0

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Measure each turn of this thread's loop, and each collection of garbage, which all threads wait for."""
        before, thread = asyncio.Handle._run, threading.get_ident()

        def run(handle: Any) -> None:
            began_s = time.thread_time()
            before(handle)
            if threading.get_ident() == thread:
                self.longest_turn_s = max(self.longest_turn_s, time.thread_time() - began_s)

        def collected(phase: str, _: object) -> None:
            if phase == "start":
                self.collections_s.append(-time.thread_time())
            else:
                self.collections_s[-1] += time.thread_time()

        gc.callbacks.append(collected)
        asyncio.Handle._run = run  # type: ignore[method-assign, assignment]  # the test replaces it
        try:
            yield
        finally:
            gc.callbacks.remove(collected)
            asyncio.Handle._run = before  # type: ignore[method-assign]  # the test replaces it

    async def measure(self) -> None:
        """Measure until cancelled."""
        while True:
            began_s = time.perf_counter()
            await asyncio.sleep(SLEEP_S)
            self.late_ms.append((time.perf_counter() - began_s - SLEEP_S) * 1000)

    def row(self, name: str, opened_s: float) -> str:
        late = sorted(self.late_ms) or [0.0]
        own = [self.longest_turn_s, max(self.collections_s, default=0.0)]
        self.late_ms, self.collections_s, self.longest_turn_s = [], [], 0.0
        waited = [opened_s * 1000, late[int(len(late) * 0.99)], late[-1]]
        return f"| {name} | {' | '.join(f'{each:.0f}' for each in (*waited, *(each * 1000 for each in own)))} |"


def _visit(url: str, path: str, text: str) -> float:
    """Open a page, wait for a text on it, and keep it open over some looks; returns how long the text took."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        began_s = time.monotonic()
        client.get("/c/cluster" + path)  # which begins a session
        with live_page(client, "/c/cluster" + path) as live:
            live.says(text)
            opened_s = time.monotonic() - began_s
            time.sleep(WATCHED_S)
            return opened_s


@contextmanager
def _looks(generated: GeneratedWatch) -> Iterator[None]:
    async def take_snapshot(cluster: Cluster, *, number: int) -> Snapshot:
        return generated.next(number)

    before, watch.take_snapshot = watch.take_snapshot, take_snapshot
    try:
        yield
    finally:
        watch.take_snapshot = before


async def _measure(kafka: KafkaThread, generated: GeneratedWatch) -> None:
    port = free_port()
    app: Any = serve._application(kafka, {"cluster": generated}, serve.Serving(port=port), None, port)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", ws="websockets-sansio"))
    serving = asyncio.create_task(server.serve())
    lateness = Lateness()
    measuring = asyncio.create_task(lateness.measure())
    await generated.looked_twice()
    print(f"a look computed in {generated.took_s[-1]:.1f} s; {_memory_mb():,} MB in all", flush=True)
    columns = ["page", "opened, ms", "late, p99 ms", "latest, ms", "longest turn, CPU ms", "longest collection"]
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    lateness.late_ms = []
    with lateness.of_this_thread():
        for name, (path, text) in PAGES.items():
            opened_s = await asyncio.to_thread(_visit, f"http://127.0.0.1:{port}", path, text)
            print(lateness.row(name, opened_s), flush=True)
    measuring.cancel()
    server.should_exit = True
    await serving


def _memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=100)
    asked = parser.parse_args()
    generated = GeneratedWatch(asked.topics, asked.partitions)
    with _looks(generated), without_full_collections(), KafkaThread() as kafka:
        kafka.start(generated.run())
        asyncio.run(_measure(kafka, generated))
    return 0


if __name__ == "__main__":
    sys.exit(main())
