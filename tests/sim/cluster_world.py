"""The faults that only a cluster gets over: a broker that comes back with an empty disk, or with an older one.

They happen while every partition has all its replicas in sync, so that two other machines have the records that one
loses, and no other machine dies before the cluster knows of it: no configuration survives the loss of a disk and of all
processes at once. The metadata log is in a directory of its own and stays: a controller that lost its vote would be
another one, which static quorums do not survive.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from odradek.metadata.image import MetadataImage
from odradek.metadata.model import PartitionImage
from tests.sim.faults import DISK_ERRORS
from tests.sim.world import RESTART_S, Machine, World

DATA = Path("/data")
METADATA = Path("/metadata")
# A cluster under faults is seldom in full health: wait for it so long.
HEALTHY_WITHIN_S = 6.0
LOOK_EVERY_S = 0.1


class ClusterWorld(World):
    """Machines whose copies stand in for each other."""

    # The machine whose data are being replaced; no other machine may die meanwhile.
    _is_away: Machine | None = None

    @property
    def swaps_disks(self) -> bool:
        """Whether this seed has such faults."""
        return bool(self.swarm.every_s["wipe"] or self.swarm.every_s["older"])

    async def _wipe(self, machine: Machine, random: Random) -> None:
        if machine.is_broker and await self._is_healthy():
            await self._replace_data(machine, {}, random, "wiped disk", "an empty disk")

    async def _older(self, machine: Machine, random: Random) -> None:
        if not machine.is_broker:
            return
        if machine.backup is None:
            self.report(f"the disk of {machine.name} is copied")
            machine.backup = {path: data for path, data in machine.disk.snapshot().items() if DATA in path.parents}
            return
        if await self._is_healthy():
            files, machine.backup = machine.backup, None
            await self._replace_data(machine, files, random, "older disk", "the disk that it had before")

    async def _replace_data(
        self, machine: Machine, files: dict[Path, bytes], random: Random, kind: str, what: str
    ) -> None:
        """Take a machine away and put it back with other data: at once where nothing else dies meanwhile, else as soon
        as the cluster does without it. Were the others to die before, what only they have counts for nothing: none of
        them stopped in good order, and the last replica that may lead is the empty one."""
        machine.kill()
        alone = not any(getattr(self.swarm.disk, error) for error in DISK_ERRORS)
        self._is_away = machine if alone else None
        if alone or await self._is_given_up(machine):
            self.report(f"{machine.name} gets {what}")
            self.count(kind)
            kept = {path: data for path, data in machine.disk.snapshot().items() if DATA not in path.parents}
            machine.disk.restore({**kept, **files})
        await asyncio.sleep(random.uniform(*RESTART_S))
        self._restart(machine)
        for _ in range(int(HEALTHY_WITHIN_S / LOOK_EVERY_S)):
            if self._is_away is None or machine.broker is not None:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        self._is_away = None

    def may_die(self, machine: Machine) -> bool:
        """Whether a fault may end this machine's processes: not while another one's data are being replaced."""
        return self._is_away in (None, machine)

    async def _is_given_up(self, machine: Machine) -> bool:
        """Wait until others have all that a machine had, and say whether that came in time; it is dead then."""
        deadline = self.loop.time() + HEALTHY_WITHIN_S
        while machine.running or not self._does_without(machine.node_id):
            if self.loop.time() >= deadline:
                return False
            machine.kill()
            await asyncio.sleep(LOOK_EVERY_S)
        return True

    def _does_without(self, node_id: int) -> bool:
        """Whether it is decided that a broker is in no in-sync set, and may not lead."""
        partitions = self._partitions()
        return bool(partitions) and all(
            each.leader >= 0 and node_id not in (each.leader, *each.isr, *each.elr, *each.last_known_elr)
            for each in partitions
        )

    def active_image(self) -> MetadataImage | None:
        """The active controller's view; None where no controller is active."""
        for machine in self.machines.values():
            if machine.broker is not None and getattr(machine.broker.raft, "leads", False):
                return machine.broker.publisher.image
        return None

    def _partitions(self) -> list[PartitionImage]:
        """All partitions, as the active controller knows them; none if no controller is active."""
        image = self.active_image()
        topics = () if image is None else image.topics_by_id.values()
        return [each for topic in topics for each in topic.partitions.values()]

    async def _is_healthy(self) -> bool:
        """Wait until all is well, and say whether that came in time."""
        deadline = self.loop.time() + HEALTHY_WITHIN_S
        while not self._is_well():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_EVERY_S)
        return True

    def _is_well(self) -> bool:
        """Whether every machine serves, the active controller has every copy of every partition in sync, and none lacks
        what is committed: a controller that was replaced does not know it at once."""
        if any(machine.broker is None for machine in self.machines.values()):
            return False
        partitions = self._partitions()
        in_sync = all(
            len(each.isr) == len(each.replicas) >= 2 and not each.adding_replicas and not each.removing_replicas
            for each in partitions
        )
        return bool(partitions) and in_sync and not self._lacks_something()

    def _lacks_something(self) -> bool:
        ends: dict[str, int] = {}
        committed: dict[str, int] = {}
        for machine in self.machines.values():
            for copy in machine.broker.replicas if machine.broker is not None and machine.is_broker else ():
                ends[copy.name] = min(ends.get(copy.name, copy.log.log_end_offset), copy.log.log_end_offset)
                committed[copy.name] = max(committed.get(copy.name, 0), copy.log.high_watermark)
        return any(ends[name] < offset for name, offset in committed.items())
