"""The world of reassignments: five brokers, and an operator that moves replicas and leaders all the time.

Two of the brokers may come while the others run, and one that was there may leave for good (`decommissioning`). The
promises are those of many nodes. Beside them, every move ends once the faults have ended, new brokers serve then, and
those that left are forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar

from odradek.client.admin import ConfigOperation, ResourceType, alter_configs
from odradek.client.reassignment import PREFERRED, elect_leaders, move_replicas, ongoing_reassignments
from odradek.common.errors import OdradekError
from odradek.settings.broker import DRAIN_KEY
from tests.sim.chaos_clients import ChaosClient
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.cluster import COPIES, MIN_IN_SYNC, ManyNodes
from tests.sim.decommissioning import Leaver
from tests.sim.deletions import Remover
from tests.sim.one_node import PARTITIONS, TOPIC
from tests.sim.polling import until
from tests.sim.world import PORT, Machine, World

BROKERS = (1, 2, 3, 4, 5)
# The probability that a broker without replicas starts later than the others, and the time of its start.
COMES_LATER = 0.5
COMES_S = (0.0, 15.0)
# The probability that a broker without replicas, which is there from the start, leaves.
LEAVES = 0.5
LEAVES_SALT = 0x6C65617665


class Mover(ChaosClient):
    """Gives partitions other replicas, takes it back, asks for elections, and drains brokers."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.begun = 0
        self.brokers: tuple[int, ...] = BROKERS
        self._drained: dict[int, None] = {}

    def pause_s(self) -> float:
        return self.random.uniform(0.05, 2.5)

    async def finish(self) -> None:
        """End all drains, and wait until nothing moves any more."""
        while True:
            try:
                for broker in tuple(self._drained):
                    await self._drain(broker, end=True)
                if not await ongoing_reassignments(self.cluster):
                    return
            except OdradekError:
                pass  # the next round asks again
            await asyncio.sleep(RETRY_S)

    async def act(self) -> None:
        key = (TOPIC, self.random.randrange(PARTITIONS))
        what = self.random.random()
        if what < 0.55:
            count = self.random.choice((MIN_IN_SYNC, COPIES, COPIES, COPIES + 1))
            results = await move_replicas(self.cluster, {key: self.random.sample(self.brokers, count)})
            self.begun += results[key] is None
        elif what < 0.65:
            await move_replicas(self.cluster, {key: None})
        elif what < 0.85:
            await elect_leaders(self.cluster, PREFERRED, [key])
        elif self._drained:
            await self._drain(next(iter(self._drained)), end=True)
        else:
            await self._drain(self.random.choice(self.brokers), end=False)

    def leave_alone(self, broker: int) -> None:
        """Move no replica to a broker any more, as it is about to leave."""
        self.brokers = tuple(each for each in self.brokers if each != broker)
        self._drained.pop(broker, None)

    async def _drain(self, broker: int, *, end: bool) -> None:
        self._drained[broker] = None
        change = (DRAIN_KEY, ConfigOperation.DELETE, None) if end else (DRAIN_KEY, ConfigOperation.SET, "-1")
        await alter_configs(self.cluster, ResourceType.BROKER, str(broker), [change])
        if end:
            self._drained.pop(broker, None)


class Newcomers:
    """Puts machines with empty disks into the running cluster: a client of the world, as the mover is."""

    def __init__(self, scenario: MovingCluster, mover: Mover, node_ids: Sequence[int]) -> None:
        self.world = scenario.world
        self.name = "newcomers"
        self.network = mover.network
        self.stopping = False
        self._scenario = scenario
        self._come_s = sorted((scenario.random.uniform(*COMES_S), node_id) for node_id in node_ids)

    async def run(self) -> None:
        """Add each at its time, those that are left when the faults end at once."""
        began_s = self.world.loop.time()
        for at_s, node_id in self._come_s:
            await until(partial(self._is_time, began_s + at_s))
            self.world.report(f"node-{node_id} is added")
            self.world.count("late broker" if self.stopping else "new broker")
            self._scenario.add_broker(node_id).start()

    def _is_time(self, at_s: float) -> bool:
        return self.stopping or self.world.loop.time() >= at_s


class MovingCluster(ManyNodes):
    """One run of a cluster whose partitions move."""

    world_name = "moving"
    # Small, so that a late broker finds no record from the beginning, and begins at a snapshot.
    settings: ClassVar[dict[str, str]] = {
        "metadata.max.retention.bytes": "6000",
        "log.flush.scheduler.interval.ms": "50",
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._remover: Remover | None = None
        self._leaver: Leaver | None = None
        self._late = [node_id for node_id in BROKERS[COPIES:] if self.random.random() < COMES_LATER]

    def add_machines(self) -> None:
        """Three nodes as in the cluster, and brokers beside them that hold nothing until somebody moves in."""
        super().add_machines()
        for node_id in BROKERS[COPIES:]:
            if node_id not in self._late:
                self.add_broker(node_id)

    def add_broker(self, node_id: int) -> Machine:
        """A broker that is not a controller; its process is not started."""
        voters = next(iter(self.world.machines.values())).settings["controller.quorum.voters"]
        return self._add(node_id, voters, "broker", f"PLAINTEXT://node-{node_id}:{PORT}")

    def more_clients(self) -> list[Any]:
        mover = Mover(self.world, "mover", 7, self.recorder)
        self._remover = Remover(self.world, "remover", 8, self.recorder, copies=self.copies)
        return [mover, Newcomers(self, mover, self._late), self._remover, *self._leavers(mover)]

    def _leavers(self, mover: Mover) -> list[Leaver]:
        chance = Random(self.world.seed ^ LEAVES_SALT)
        there = [node_id for node_id in BROKERS[COPIES:] if node_id not in self._late]
        if not there or chance.random() >= LEAVES:
            return []
        node_id = chance.choice(there)
        machine = self.world.machines[f"node-{node_id}"]
        stay = [each for each in BROKERS if each != node_id]
        self._leaver = Leaver(self.world, "leaver", 11, self.recorder, machine=machine, stay=stay)
        self._leaver.begins = lambda: mover.leave_alone(node_id)
        return [self._leaver]

    def unfinished(self) -> list[str]:
        return [*super().unfinished(), *self._still_known()]

    def check_logs(self) -> list[str]:
        left = [] if self._remover is None else self._remover.left_over()
        return [*super().check_logs(), *left, *self._still_known()]

    def _still_known(self) -> list[str]:
        return [] if self._leaver is None else self._leaver.still_known()
