"""A replicated cluster inside the process of a test, up in a second or two, with faults to switch on.

    with Cluster(brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(2)

Every node is the whole node over real sockets and real files, on a thread of its own. `AsyncCluster` is the same for
tests that are coroutines.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from odradek.common.real_io import RealDisk
from odradek.server.startup.format import FormatOptions
from odradek.testing.faults import NetworkLinks
from odradek.testing.layout import NodePlan, bootstrap_servers, format_cluster, plan_cluster
from odradek.testing.node_thread import START_TIMEOUT_S, NodeThread

# Small internal topics, no waiting for a group's first members, and elections as fast as one machine allows.
DEFAULTS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.fetch.timeout.ms": "1500",
}
POLL_S = 0.02


class ClusterOptions(TypedDict, total=False):
    """The keyword arguments of `Cluster`."""

    controllers: int
    racks: Sequence[str]
    settings: Mapping[str, object] | None
    directory: Path | None


class Cluster:
    """Some nodes. Use it with `with`, or call `start` and `stop`. Node ids count from 1."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        controllers: int = 0,
        racks: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        directory: Path | None = None,
    ) -> None:
        """
        Args:
            controllers: dedicated controllers, with ids from 1001; if 0, one or three brokers are controllers too.
            racks: assigned to the brokers in turn.
            settings: Kafka's keys for all nodes, which override those of a small cluster.
            directory: of the data; if None, it is temporary and removed by `stop`.
        """
        self._brokers = brokers
        self._controllers = controllers
        self._racks = racks
        self._settings = {**DEFAULTS, **(settings or {})}
        self._own_directory = directory is None
        self._directory = directory
        self._wires = NetworkLinks()
        self._plans: dict[int, NodePlan] = {}
        self._nodes: dict[int, NodeThread] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for clients: all brokers, `host:port,host:port`."""
        assert self._plans, "the cluster was not started"
        return bootstrap_servers(list(self._plans.values()))

    @property
    def node_ids(self) -> list[int]:
        """All nodes, brokers first, running or not."""
        return list(self._plans)

    def address(self, node_id: int) -> str:
        """`host:port` of one broker."""
        return bootstrap_servers([self._plans[node_id]])

    def is_running(self, node_id: int) -> bool:
        """Whether a node was started and neither killed nor stopped."""
        return node_id in self._nodes

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition in the metadata of the first running node; -1 if there is none."""
        node = next(iter(self._running().values()))
        found = node.broker.publisher.image.partition(topic, partition)
        return -1 if found is None else found.leader

    def controller(self) -> int:
        """The active controller in the metadata of the first running node; -1 if there is none."""
        return next(iter(self._running().values())).broker.publisher.image.controller_id

    def start(self) -> Self:
        """Start all nodes and return when they serve.

        Raises:
            ConfigError, StorageError, OSError: as a node refuses to start.
        """
        assert not self._nodes, "the cluster runs already"
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        try:
            plans = self._plan(self._directory)
            self._plans = {plan.node_id: plan for plan in plans}
            disk = RealDisk()
            try:
                format_cluster(disk, plans, self._format_options(), now_ms=time.time_ns() // 1_000_000)
            finally:
                disk.close()
            self._begin(self._plans)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all nodes cleanly; a temporary directory is removed. Raises StorageError."""
        self.heal()
        nodes, self._nodes = self._nodes, {}
        try:
            # When all nodes stop there is no other broker to hand leaders over to.
            for node_id in sorted(nodes, reverse=True):
                nodes[node_id].stop(skip_controlled_shutdown=True)
        finally:
            if self._own_directory and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def kill(self, node_id: int) -> None:
        """End a node as kill -9 does: no goodbye, nothing marked as clean."""
        self._nodes.pop(node_id).kill()

    def shut_down(self, node_id: int) -> None:
        """Stop a node in good order: its leaders move first. Raises StorageError."""
        self._nodes.pop(node_id).stop()

    def restart(self, node_id: int) -> None:
        """Restart a node with its files, after a clean stop if it runs; returns when it serves."""
        if node_id in self._nodes:
            self.shut_down(node_id)
        self._begin([node_id])

    def pause(self, node_id: int) -> None:
        """Let a node stand still, as a process that was sent SIGSTOP; its connections stay open."""
        self._nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """Resume a paused node."""
        self._nodes[node_id].resume()

    def partition(self, *groups: Iterable[int]) -> None:
        """Cut the network between groups of nodes; nodes that are in none reach everybody. Clients reach all nodes."""
        self._wires.partition([frozenset(group) for group in groups])
        for node in self._nodes.values():
            node.on_loop(node.network.drop_divided)

    def slow_disk(self, node_id: int, delay_ms: int) -> None:
        """Delay the syncs and other blocking work of a node."""
        self._nodes[node_id].disk.delay_ms = delay_ms

    def skew_clock(self, node_id: int, skew_ms: int) -> None:
        """Put a node's wall clock forward, or with a negative number back."""
        self._nodes[node_id].clock.skew_ms = skew_ms

    def heal(self) -> None:
        """End all faults of running nodes: pauses, cuts, slow disks, skewed clocks."""
        self._wires.partition([])
        for node in self._nodes.values():
            node.resume()
            node.disk.delay_ms = node.clock.skew_ms = 0

    def restore(self) -> None:
        """Heal faults, start stopped nodes, and wait until all brokers serve. Raises AssertionError after a minute."""
        self.heal()
        missing = [node_id for node_id in self._plans if node_id not in self._nodes]
        if missing:
            self._begin(missing)
        brokers = {node_id for node_id, plan in self._plans.items() if plan.is_broker}
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(brokers <= self._known_to(node) for node in self._nodes.values()):
            assert time.monotonic() < deadline, "the cluster is not whole again within a minute"
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _plan(self, directory: Path) -> list[NodePlan]:
        return plan_cluster(
            directory,
            brokers=self._brokers,
            controllers=self._controllers,
            racks=self._racks,
            settings=self._settings,
        )

    def _format_options(self) -> FormatOptions:
        return FormatOptions()

    def _running(self) -> dict[int, NodeThread]:
        running = {node_id: node for node_id, node in self._nodes.items() if not node.paused}
        assert running, "no node runs"
        return running

    def _begin(self, node_ids: Iterable[int]) -> None:
        """Start nodes concurrently: a single one of three would wait for the others."""
        starting = {node_id: NodeThread(node_id, self._wires) for node_id in node_ids}
        begun = {node_id: node.begin(self._plans[node_id].config) for node_id, node in starting.items()}
        failure: BaseException | None = None
        for node_id, done in begun.items():
            try:
                done.result(START_TIMEOUT_S)
                self._nodes[node_id] = starting[node_id]
            except BaseException as error:
                failure = error
                done.cancel()
                starting[node_id].end()
        if failure is not None:
            raise failure

    @staticmethod
    def _known_to(node: NodeThread) -> set[int]:
        return {broker_id for broker_id, each in node.broker.publisher.image.brokers.items() if not each.fenced}


class AsyncCluster:
    """`Cluster` for coroutines: blocking calls are awaited, off the test's own loop. Use it with `async with`."""

    def __init__(self, brokers: int = 3, **options: Unpack[ClusterOptions]) -> None:
        """See `Cluster`."""
        self.cluster = Cluster(brokers, **options)

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for clients."""
        return self.cluster.bootstrap_servers

    async def start(self) -> Self:
        """See `Cluster.start`."""
        await asyncio.to_thread(self.cluster.start)
        return self

    async def stop(self) -> None:
        """See `Cluster.stop`."""
        await asyncio.to_thread(self.cluster.stop)

    async def kill(self, node_id: int) -> None:
        """See `Cluster.kill`."""
        await asyncio.to_thread(self.cluster.kill, node_id)

    async def shut_down(self, node_id: int) -> None:
        """See `Cluster.shut_down`."""
        await asyncio.to_thread(self.cluster.shut_down, node_id)

    async def restart(self, node_id: int) -> None:
        """See `Cluster.restart`."""
        await asyncio.to_thread(self.cluster.restart, node_id)

    async def restore(self) -> None:
        """See `Cluster.restore`."""
        await asyncio.to_thread(self.cluster.restore)

    def leader(self, topic: str, partition: int = 0) -> int:
        """See `Cluster.leader`."""
        return self.cluster.leader(topic, partition)

    def controller(self) -> int:
        """See `Cluster.controller`."""
        return self.cluster.controller()

    def pause(self, node_id: int) -> None:
        """See `Cluster.pause`."""
        self.cluster.pause(node_id)

    def resume(self, node_id: int) -> None:
        """See `Cluster.resume`."""
        self.cluster.resume(node_id)

    def partition(self, *groups: Iterable[int]) -> None:
        """See `Cluster.partition`."""
        self.cluster.partition(*groups)

    def slow_disk(self, node_id: int, delay_ms: int) -> None:
        """See `Cluster.slow_disk`."""
        self.cluster.slow_disk(node_id, delay_ms)

    def skew_clock(self, node_id: int, skew_ms: int) -> None:
        """See `Cluster.skew_clock`."""
        self.cluster.skew_clock(node_id, skew_ms)

    def heal(self) -> None:
        """See `Cluster.heal`."""
        self.cluster.heal()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
