"""The world of many nodes: a quorum of controllers, brokers with three copies of everything, and the same clients.

The guarantees of one node must hold here while nodes are killed, paused, cut off from each other one way or both, and
lose power; `cluster_invariants` checks those that only many nodes can break.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar

from tests.sim import faults
from tests.sim.cluster_invariants import ClusterWatch, different_logs, unconverged
from tests.sim.cluster_world import METADATA, ClusterWorld
from tests.sim.filled import works_without_space
from tests.sim.invariants import Watch
from tests.sim.one_node import PARTITIONS, TOPIC, OneNode
from tests.sim.polling import until
from tests.sim.world import PORT, Machine, World

COPIES = 3
MIN_IN_SYNC = 2
# The probability that a seed has controllers of their own beside its brokers.
SEPARATE_CONTROLLERS = 0.25
FIRST_CONTROLLER = 101
LOOK_EVERY_S = 0.2
CLUSTER_ID = "a-cluster-in-the-box--"
SETTINGS = {
    "offsets.topic.replication.factor": str(COPIES),
    "transaction.state.log.replication.factor": str(COPIES),
    "min.insync.replicas": str(MIN_IN_SYNC),
    # Short, so that a run of seconds sees many elections and changes of in-sync sets.
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "100",
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
}


class ManyNodes(OneNode):
    """One run of a cluster."""

    world_name = "cluster"
    copies = COPIES
    # A record that one replica acknowledged may be unknown to the others.
    acks = (-1,)
    # Additional listeners of brokers, with a comma before them; `{host}` is the host of the broker.
    more_listeners: str = ""
    durable_settings: ClassVar[dict[str, str]] = {"log.flush.interval.messages": "1"}

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        """Draw faults, those with which machines lose their disks included, since every replica has others."""
        return faults.draw(random, without, copies=True)

    @classmethod
    def make_world(cls, seed: int, swarm: faults.Swarm, on_event: Callable[[str], None] | None) -> ClusterWorld:
        settings = cls.settings | (cls.durable_settings if swarm.loses_power else {})
        return ClusterWorld(seed, swarm, settings=settings, on_event=on_event)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        if isinstance(world, ClusterWorld) and world.swaps_disks:
            world.settings = {"metadata.log.dir": str(METADATA), **world.settings}
        world.settings = {**SETTINGS, **world.settings}
        world.cluster_id = CLUSTER_ID
        self._watching: ClusterWatch | None = None

    def add_machines(self) -> None:
        """Three nodes that are both, or three brokers and three controllers."""
        numbers = range(1, COPIES + 1)
        if self.random.random() < SEPARATE_CONTROLLERS:
            controllers = [FIRST_CONTROLLER + number for number in range(COPIES)]
            voters = ",".join(f"{node_id}@node-{node_id}:{PORT + 1}" for node_id in controllers)
            for node_id in controllers:
                self._add(node_id, voters, "controller", f"CONTROLLER://node-{node_id}:{PORT + 1}")
            for node_id in numbers:
                self._add(node_id, voters, "broker", f"PLAINTEXT://node-{node_id}:{PORT}{self._more(node_id)}")
            return
        voters = ",".join(f"{node_id}@node-{node_id}:{PORT + 1}" for node_id in numbers)
        for node_id in numbers:
            listeners = f"PLAINTEXT://node-{node_id}:{PORT},CONTROLLER://node-{node_id}:{PORT + 1}"
            self._add(node_id, voters, "broker,controller", listeners + self._more(node_id))

    def _more(self, node_id: int) -> str:
        return self.more_listeners.format(host=f"node-{node_id}")

    def _add(self, node_id: int, voters: str, roles: str, listeners: str) -> Machine:
        settings = {
            "process.roles": roles,
            "listeners": listeners,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
        }
        return self.world.add_machine(f"node-{node_id}", node_id, settings)

    def make_watch(self) -> Watch:
        self._watching = ClusterWatch(self.world, self.recorder)
        return self._watching

    async def converge(self) -> None:
        """Wait until all nodes have the same metadata, and every partition has all its replicas in sync."""
        await self._agree()
        if type(self) is ManyNodes:  # the worlds that build on this one have other things to show
            brokers = [machine for machine in self.world.machines.values() if machine.is_broker]
            partitions = [(TOPIC, number) for number in range(PARTITIONS)]
            await works_without_space(self.world, self.random.choice(brokers), partitions)
            await self._agree()

    async def _agree(self) -> None:
        await until(lambda: not self.unfinished(), pause_s=LOOK_EVERY_S)

    def unfinished(self) -> list[str]:
        return unconverged(self.world)

    def check_logs(self) -> list[str]:
        return super().check_logs() + different_logs(self.world)
