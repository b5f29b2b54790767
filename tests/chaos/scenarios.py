"""Faults for three nodes under load. Each scenario ends with all faults gone; `verdict` checks what must hold then."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from odradek.common.real_io import RealDisk
from odradek.server.startup.format import FormatOptions, format_storage
from odradek.testing.layout import write_properties
from odradek.testing.processes import NodeProcess
from tests.chaos.hosts import Hosts, hosts
from tests.chaos.load import Reader, Writer
from tests.chaos.verdict import Verdict, admin, leaders, verdict_of, whole
from tests.support.disks.file_system import Ballast, LoopDisk, small_tmpfs
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import eventually

NODES = 3
TOPIC = "kept"
PARTITIONS = 3
WRITERS = 2
DISK_BYTES = 256 << 20
SKEW_S = 3600
# Short sessions, so that a run of seconds has many of them; all else is as by default.
SETTINGS: dict[str, object] = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 5000,
    "offsets.topic.num.partitions": 1,
}
SYNCED: dict[str, object] = {"log.flush.interval.messages": 1}


@dataclass
class World:
    """Three nodes, their machines and disks, and a random generator."""

    cluster: Cluster
    random: random.Random
    hosts: Hosts | None = None
    disks: dict[int, LoopDisk] = field(default_factory=dict)
    reported: Callable[[str], None] = print

    def leader(self) -> NodeProcess:
        """The node that leads a partition, any of them that has a leader."""
        found = eventually(
            lambda: [each for each in leaders(self.cluster, TOPIC).values() if each > 0], "somebody leads"
        )
        return self.cluster[self.random.choice(found)]

    def others(self, node: NodeProcess) -> list[NodeProcess]:
        return [each for each in self.cluster.brokers if each is not node]

    def in_sync(self, *, restarting: NodeProcess | None = None) -> None:
        """Wait until all replicas are; a node that may be about to end is started again when it has."""

        def are() -> bool:
            if restarting is not None and not restarting.running:
                restarting.start()
            return bool(whole(self.cluster, TOPIC, NODES))

        eventually(are, "all replicas are in sync")


Act = Callable[[World, int], None]


@dataclass(frozen=True)
class Scenario:
    """A scenario. `act` gets the number of rounds; `disk`, the file system of each node, is "", "tmpfs" or "ext4"."""

    name: str
    act: Act
    needs_hosts: bool = False
    disk: str = ""
    settings: dict[str, object] = field(default_factory=dict)


def killed_leader(world: World, rounds: int) -> None:
    """kill -9 of a leader, and its return, again and again."""
    for _ in range(rounds):
        node = world.leader()
        world.reported(f"kill -9 of node {node.node_id}")
        node.kill()
        time.sleep(world.random.uniform(0.5, 4))
        node.start()
        world.in_sync()


def rolling(world: World, rounds: int) -> None:
    """Each node is stopped cleanly and started again, one after the other; no request may be refused."""
    for _ in range(rounds):
        for node in world.cluster.brokers:
            world.reported(f"node {node.node_id} restarts")
            node.restart()
            world.in_sync()


def zombie(world: World, rounds: int) -> None:
    """A leader is paused for longer than its session, and goes on as if nothing had happened."""
    for _ in range(rounds):
        node = world.leader()
        world.reported(f"SIGSTOP of node {node.node_id}")
        node.pause()
        time.sleep(world.random.uniform(4, 7))
        node.resume()
        time.sleep(1)


def cut_from_followers(world: World, rounds: int) -> None:
    """A leader reaches no other node; clients reach it as before."""
    assert world.hosts is not None
    for _ in range(rounds):
        node = world.leader()
        world.reported(f"node {node.node_id} is cut off from the others, and not from clients")
        for other in world.others(node):
            world.hosts.cut_both(node.plan.host, other.plan.host)
        time.sleep(world.random.uniform(4, 8))
        world.hosts.heal()
        time.sleep(2)


def one_way(world: World, rounds: int) -> None:
    """Traffic from one node to another is lost; the other way is open."""
    assert world.hosts is not None
    for _ in range(rounds):
        node = world.leader()
        other = world.random.choice(world.others(node))
        for sender, receiver in ((node, other), (other, node)):
            world.reported(f"what node {sender.node_id} sends to node {receiver.node_id} is lost")
            world.hosts.cut(sender.plan.host, receiver.plan.host)
            time.sleep(world.random.uniform(3, 6))
            world.hosts.heal()
            time.sleep(1)


def all_at_once(world: World, rounds: int) -> None:
    """kill -9 of every node at the same time; nothing was synced on purpose."""
    for _ in range(rounds):
        world.reported("kill -9 of all")
        world.cluster.kill()
        world.cluster.start()
        world.in_sync()


def power(world: World, rounds: int) -> None:
    """All machines lose power at once, and with it the bytes that were not synced."""
    for _ in range(rounds):
        world.reported("power loss of all")
        for disk in world.disks.values():
            disk.lose_power()
        world.cluster.kill()
        for disk in world.disks.values():
            disk.unmount()
            disk.mount()
        world.cluster.start()
        world.in_sync()


def failing_disk(world: World, rounds: int) -> None:
    """Every access to a leader's disk fails with EIO; the machine gets its disk back later."""
    for _ in range(rounds):
        node = world.leader()
        world.reported(f"EIO on the disk of node {node.node_id}")
        disk = world.disks[node.node_id]
        disk.lose_power()
        time.sleep(world.random.uniform(2, 4))
        if node.running:
            node.kill()
        disk.unmount()
        disk.mount()
        node.start()
        world.in_sync()


def full_disk(world: World, rounds: int) -> None:
    """The disk of a leader is full for a while."""
    for _ in range(rounds):
        node = world.leader()
        world.reported(f"the disk of node {node.node_id} is full")
        ballast = Ballast(node.plan.data_dir)
        ballast.fill()
        time.sleep(world.random.uniform(2, 5))
        ballast.release()
        time.sleep(2)
        world.in_sync(restarting=node)


def clocks(world: World, rounds: int) -> None:
    """Two nodes whose wall clocks are two hours apart, the third between; and a leader killed among them."""
    shim = world.cluster.plans[0].directory.parent / "skewed_clock.so"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed, which the wrong clocks are made with")
    source = Path(__file__).with_name("skewed_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", shim, source, "-ldl"], check=True)
    for node, skew_s in zip(world.cluster.brokers, (SKEW_S, -SKEW_S, 0), strict=True):
        world.reported(f"the clock of node {node.node_id} is {skew_s} s off")
        node.environment = {"LD_PRELOAD": str(shim), "SKEW_S": str(skew_s)}
        node.restart()
        world.in_sync()
    killed_leader(world, rounds)


def controllers(world: World, rounds: int) -> None:
    """The active controller is killed every few seconds while topics and settings change."""
    ended = threading.Event()
    made: set[str] = set()
    changing = threading.Thread(target=_change, args=(world, ended, made), daemon=True)
    changing.start()
    try:
        for _ in range(rounds):
            node = world.cluster[world.cluster.await_controller()]
            world.reported(f"kill -9 of the active controller, node {node.node_id}")
            node.kill()
            time.sleep(world.random.uniform(1, 3))
            node.start()
    finally:
        ended.set()
        changing.join()
    for node in world.cluster.brokers:
        eventually(lambda node=node: made <= _topics(node), f"node {node.node_id} knows all topics")


def _change(world: World, ended: threading.Event, made: set[str]) -> None:
    """Make topics, change their settings, remove some; a refusal is tried again by the next."""
    client = admin(world.cluster)
    number = 0
    while not ended.is_set():
        name = f"more-{number}"
        number += 1
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        resource.add_incremental_config(
            ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
        )
        try:
            client.create_topics([NewTopic(name, 2, NODES)], operation_timeout=10)[name].result(20)
            client.incremental_alter_configs([resource])[resource].result(20)
            if number % 3 == 0:
                client.delete_topics([name], operation_timeout=10)[name].result(20)
            else:
                made.add(name)
        except (KafkaException, TimeoutError):
            time.sleep(0.2)  # the controller is being replaced: whether it came to be is open


def _topics(node: NodeProcess) -> set[str]:
    from confluent_kafka.admin import AdminClient

    try:
        return set(AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0}).list_topics(timeout=10).topics)
    except KafkaException:
        return set()  # it has not answered yet


def wiped(world: World, rounds: int) -> None:
    """A node is killed and comes back with an empty disk."""
    for _ in range(rounds):
        node = world.leader()
        world.reported(f"node {node.node_id} loses its disk")
        node.kill()
        shutil.rmtree(node.plan.data_dir)
        disk = RealDisk()
        try:
            settings = write_properties(disk, node.plan)
            now_ms = time.time_ns() // 1_000_000
            chance = random.SystemRandom()
            format_storage(disk, settings, world.cluster.cluster_id, FormatOptions(), random=chance, now_ms=now_ms)
        finally:
            disk.close()
        node.start()
        world.in_sync()


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("killed-leader", killed_leader),
        Scenario("rolling", rolling),
        Scenario("zombie", zombie),
        Scenario("cut-from-followers", cut_from_followers, needs_hosts=True),
        Scenario("one-way", one_way, needs_hosts=True),
        Scenario("all-at-once", all_at_once),
        Scenario("power", power, disk="ext4", settings=SYNCED),
        Scenario("failing-disk", failing_disk, disk="ext4"),
        Scenario("full-disk", full_disk, disk="tmpfs"),
        Scenario("clocks", clocks),
        Scenario("controllers", controllers),
        Scenario("wiped", wiped),
    )
}


@contextmanager
def world_of(scenario: Scenario, directory: Path, seed: int, reported: Callable[[str], None]) -> Iterator[World]:
    """The nodes of a scenario, started, with the topic. Skips, saying why, where the machine does not allow it."""
    with ExitStack() as stack:
        machines = stack.enter_context(hosts(NODES)) if scenario.needs_hosts else None
        disks: dict[int, LoopDisk] = {}
        for node_id in range(1, NODES + 1):
            home = directory / f"node-{node_id}" / "data"
            if scenario.disk == "tmpfs":
                stack.enter_context(small_tmpfs(home, DISK_BYTES))
            elif scenario.disk == "ext4":
                image = directory / f"disk-{node_id}"
                disks[node_id] = stack.enter_context(LoopDisk(image, home, DISK_BYTES))
        cluster = Cluster(
            directory,
            brokers=NODES,
            settings={**SETTINGS, **scenario.settings},
            hosts=None if machines is None else machines.launchers(),
        )
        stack.callback(cluster.kill)
        cluster.start()
        configs = {"min.insync.replicas": "2"}
        client = admin(cluster)  # it must live for as long as the answer takes
        client.create_topics([NewTopic(TOPIC, PARTITIONS, NODES, config=configs)])[TOPIC].result(90)
        yield World(cluster, random.Random(seed), machines, disks, reported)


def play(acts: list[Act], world: World, *, rounds: int, settle_s: float = 1.0) -> Verdict:
    """Load, the acts in turn, and the verdict. Raises AssertionError where the cluster does not come back."""
    bootstrap = world.cluster.bootstrap_servers
    writers = [Writer(f"w{number}", bootstrap, TOPIC, PARTITIONS) for number in range(WRITERS)]
    reader = Reader(bootstrap, TOPIC, PARTITIONS)
    for thread in (*writers, reader):
        thread.start()
    time.sleep(settle_s)
    for act in acts:
        act(world, rounds)
    return verdict_of(world.cluster, TOPIC, writers, reader, healed_at=time.monotonic())
