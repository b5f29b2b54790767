"""The world in which machines die whole: six brokers on three hosts, two on each, and three copies of everything.

A host goes dark or its processes are killed, both brokers and perhaps a controller at once, and it comes back with new
disks for their logs. Before that a broker elsewhere is often cut off until in-sync sets are as small as
`min.insync.replicas` allows. As replicas are placed by `broker.host`, each partition then has an in-sync replica on
another host, and no acknowledged record is lost; if the two in-sync replicas shared the host, all would be. Nothing
else dies while a host is away: no configuration of three replicas survives two losses at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from odradek.common.errors import OdradekError
from odradek.common.topic_names import INTERNAL_TOPICS
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import PartitionImage
from tests.sim import faults
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.cluster import MIN_IN_SYNC, ManyNodes
from tests.sim.cluster_world import DATA, METADATA, ClusterWorld
from tests.sim.one_node import TOPIC, Admin
from tests.sim.polling import until
from tests.sim.world import PORT, RESTART_S, Machine, World

HOSTS = 3
BROKERS_OF_A_HOST = 2
EVERY_S = (0.2, 1.5)
# The probability that a broker of another host is cut off before.
CUT_OFF = 0.8
# Longer than a broker may lag, and until it is fenced; shorter than a run.
SHRINKS_WITHIN_S, FENCED_WITHIN_S, BACK_WITHIN_S = 3.0, 6.0, 15.0
LOOK_EVERY_S = 0.05
# The faults beside. Those of processes are the hosts': a cluster of six is to be in full health again and again.
OTHER_FAULTS = ("cut", "clock", "drift")
SELDOM_S = 12.0
LATENCY_MS = (0.05, 2.0)


class HostsWorld(ClusterWorld):
    """Machines that share hosts; a machine of this world is a broker, as everywhere in the simulator."""

    # The host that is away; no other machine may die meanwhile.
    _away: str = ""

    def host_of(self, machine: Machine) -> str:
        return machine.settings["broker.host"]

    def may_die(self, machine: Machine) -> bool:
        return not self._away and super().may_die(machine)

    async def lose_a_host(self, random: Random) -> None:
        """Let a host die with its logs, where every partition has enough in sync, and put it back.

        Of a partition one replica falls out of the in-sync set before, and the host is that of another one.
        """
        if not await self._is_healthy() or self.healing:
            return
        image = self.active_image()
        topic = None if image is None else image.topics_by_name.get(TOPIC)
        if topic is None:
            return
        slow, *others = random.sample(random.choice([*topic.partitions.values()]).replicas, 3)
        host = self.host_of(self.machines[f"node-{others[0]}"])
        if random.random() < CUT_OFF and self.host_of(self.machines[f"node-{slow}"]) != host:
            await self._cut_off(self.machines[f"node-{slow}"])
        if self.healing or not self.swarm.happens("host") or not self._outlives_a_loss():
            self.wires.heal()
            return
        self._away = host
        members = [each for each in self.machines.values() if self.host_of(each) == host]
        goes_dark = random.random() < 0.5
        self.report(f"{host} {'goes dark' if goes_dark else 'is killed'}: {', '.join(each.name for each in members)}")
        self.count("host died")
        for machine in members:
            machine.kill(power=goes_dark)
        self.wires.heal()
        if await self._within(FENCED_WITHIN_S, lambda: self._are_fenced(members)):
            self._replace_disks(members)
        await asyncio.sleep(random.uniform(*RESTART_S))
        for machine in members:
            self._restart(machine)
        await self._within(BACK_WITHIN_S, self._is_well)
        self._away = ""

    async def _cut_off(self, machine: Machine) -> None:
        """Cut a broker off from all others until it is in no in-sync set any more."""
        self.report(f"{machine.name} is cut off")
        for other in self.machines:
            if other != machine.name:
                self.wires.cut(machine.name, other)
                self.wires.cut(other, machine.name)
        await self._within(
            SHRINKS_WITHIN_S, lambda: all(machine.node_id not in each.isr for each in self._partitions())
        )

    def _outlives_a_loss(self) -> bool:
        """Whether the loss of any single host would lose nothing: all processes run, and enough replicas are in sync.

        For topics that were placed while all hosts were there, it relies on the placement to have used several hosts.
        """
        leading = [each for each in self.machines.values() if each.broker is not None and self._leads(each)]
        if len(leading) != 1 or any(machine.broker is None for machine in self.machines.values()):
            return False
        image = self.active_image()
        topics = () if image is None else image.topics_by_id.values()
        return all(
            each.leader >= 0 and len(self._standing(topic.name, each)) >= MIN_IN_SYNC
            for topic in topics
            for each in topic.partitions.values()
        )

    def _standing(self, topic: str, partition: PartitionImage) -> set[int] | set[str]:
        """The replicas that are in sync; for topics that may have been created while a host was away, their hosts."""
        if topic == TOPIC or topic in INTERNAL_TOPICS:
            return set(partition.isr)
        return {self.host_of(self.machines[f"node-{node_id}"]) for node_id in partition.isr}

    def _leads(self, machine: Machine) -> bool:
        return machine.broker is not None and bool(getattr(machine.broker.raft, "leads", False))

    def _are_fenced(self, members: list[Machine]) -> bool:
        """Whether the cluster goes on without them; those that were started again count no more."""
        image: MetadataImage | None = self.active_image()
        return image is not None and all(image.brokers[each.node_id].fenced for each in members)

    def _replace_disks(self, members: list[Machine]) -> None:
        if any(machine.running for machine in members):  # the faults are over
            return
        for machine in members:
            self.report(f"{machine.name} gets an empty disk")
            kept = {path: data for path, data in machine.disk.snapshot().items() if DATA not in path.parents}
            machine.disk.restore(kept)
        self.count("host lost its disks")

    async def _within(self, limit_s: float, condition: Callable[[], bool]) -> bool:
        deadline = self.loop.time() + limit_s
        while not condition():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_EVERY_S)
        return True


class HostKiller(Client):
    """Loses one host after the other: a client of the world, so that it ends with the faults."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False

    async def run(self) -> None:
        """Lose one host after the other until `stopping`."""
        assert isinstance(self.world, HostsWorld)
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(*EVERY_S))
            if not self.world.healing:
                await self.world.lose_a_host(self.random)


class HostsCluster(ManyNodes):
    """One run of a cluster whose brokers share hosts."""

    world_name = "hosts"
    salt = 0x4057

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        """Clocks, cuts and connections as anywhere; no process dies and no disk is lost but with its host."""
        drawn = faults.draw(random, without, copies=False)
        rates = {kind: every and max(SELDOM_S, every) for kind, every in drawn.every_s.items() if kind in OTHER_FAULTS}
        drawn.every_s = {**dict.fromkeys(faults.KINDS, 0.0), **rates}
        drawn.loses_power = False
        for kind in (*faults.DISK_ERRORS, "slow_sync"):
            setattr(drawn.disk, kind, 0.0)
        drawn.network.latency_ms, drawn.network.stall = LATENCY_MS, 0.0
        return drawn

    @classmethod
    def make_world(cls, seed: int, swarm: faults.Swarm, on_event: Callable[[str], None] | None) -> HostsWorld:
        settings = {**cls.settings, "metadata.log.dir": str(METADATA)}
        return HostsWorld(seed, swarm, settings=settings, on_event=on_event)

    def add_machines(self) -> None:
        """Add the brokers of all hosts; the first broker of each host is a controller as well."""
        ids = range(1, HOSTS * BROKERS_OF_A_HOST + 1)
        voters = ",".join(f"{node}@node-{node}:{PORT + 1}" for node in ids[::BROKERS_OF_A_HOST])
        for node_id in ids:
            host, place = divmod(node_id - 1, BROKERS_OF_A_HOST)
            listeners = f"PLAINTEXT://node-{node_id}:{PORT}"
            if place == 0:
                self._add(node_id, voters, "broker,controller", f"{listeners},CONTROLLER://node-{node_id}:{PORT + 1}")
            else:
                self._add(node_id, voters, "broker", listeners)
            self.world.machines[f"node-{node_id}"].settings["broker.host"] = f"host-{host + 1}"

    async def before_topics(self, admin: Admin) -> None:
        """Wait until all brokers are there, before replicas are placed, those of __consumer_offsets included."""
        world = self.world
        assert isinstance(world, HostsWorld)
        ids = {machine.node_id for machine in world.machines.values()}

        def all_active() -> bool:
            image = world.active_image()
            return image is not None and {each.broker_id for each in image.brokers.values() if each.active} == ids

        await until(all_active)
        while True:
            try:
                await admin.cluster.coordinator("any")
                return
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    def more_clients(self) -> list[HostKiller]:
        return [HostKiller(self.world, "host-killer", 8, self.recorder)]
