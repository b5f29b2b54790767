"""The faults that only a cluster gets over: a broker that comes back with an empty disk, or with an older one.

They happen while every partition has all its copies in sync, so that what one machine forgets two others have. What the
broker knows of the metadata lies in a directory of its own and stays: a controller that forgot its vote would be
another one, which static quorums do not survive.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.sim.world import RESTART_S, Machine, World

DATA = Path("/data")
METADATA = Path("/metadata")
# A cluster under faults is seldom in full health: wait for it so long.
HEALTHY_WITHIN_S = 6.0
LOOK_EVERY_S = 0.1


class ClusterWorld(World):
    """Machines whose copies stand in for each other."""

    @property
    def swaps_disks(self) -> bool:
        """Whether this seed has such faults."""
        return bool(self.swarm.every_s["wipe"] or self.swarm.every_s["older"])

    async def _wipe(self, machine: Machine, random: Random) -> None:
        if not machine.is_broker or not await self._is_healthy():
            return
        self.tell(f"{machine.name} gets an empty disk")
        self.count("wiped disk")
        await self._replace_data(machine, {}, random)

    async def _older(self, machine: Machine, random: Random) -> None:
        if not machine.is_broker:
            return
        if machine.backup is None:
            self.tell(f"the disk of {machine.name} is copied")
            machine.backup = {path: data for path, data in machine.disk.snapshot().items() if DATA in path.parents}
            return
        if not await self._is_healthy():
            return
        self.tell(f"{machine.name} gets the disk that it had before")
        self.count("older disk")
        files, machine.backup = machine.backup, None
        await self._replace_data(machine, files, random)

    async def _replace_data(self, machine: Machine, files: dict[Path, bytes], random: Random) -> None:
        machine.kill()
        kept = {path: data for path, data in machine.disk.snapshot().items() if DATA not in path.parents}
        machine.disk.restore({**kept, **files})
        await asyncio.sleep(random.uniform(*RESTART_S))
        self._restart(machine)

    async def _is_healthy(self) -> bool:
        """Wait until all is well, and say whether that came in time."""
        deadline = self.loop.time() + HEALTHY_WITHIN_S
        while not self._is_well():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_EVERY_S)
        return True

    def _is_well(self) -> bool:
        """Whether every machine serves and the active controller has every copy of every partition in sync."""
        brokers = [machine.broker for machine in self.machines.values() if machine.broker is not None]
        if len(brokers) < len(self.machines):
            return False
        for broker in brokers:
            if getattr(broker.raft, "leads", False):
                image = broker.publisher.image
                partitions = [each for topic in image.topics_by_id.values() for each in topic.partitions.values()]
                return bool(partitions) and all(
                    len(each.isr) == len(each.replicas) >= 2 and not each.adding_replicas and not each.removing_replicas
                    for each in partitions
                )
        return False
