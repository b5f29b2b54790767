"""An operator that takes a broker out of the running cluster for good: emptied, stopped or dead, and unregistered.

Its replicas are moved away first, as no copy may depend on a disk that will not come back. Meanwhile the broker is
killed and started again as the others are. When it has none left it is stopped in good order, killed, or loses its
power; then it is unregistered, and replicas that were placed on it at the last moment are moved away too. In the end
no node knows it, and no partition names it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from odradek.client.admin import unregister_broker
from odradek.client.reassignment import move_replicas
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.metadata.model import PartitionImage
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.cluster_world import ClusterWorld
from tests.sim.polling import until
from tests.sim.world import Machine, World

LEAVES_S = (2.0, 12.0)
# The ways in which the broker ends: a clean stop, a kill, a loss of power.
ENDS = ("stop", "kill", "power")
Key = tuple[str, int]


class Leaver(Client):
    """Takes one broker away: a client of the world."""

    def __init__(
        self, world: World, name: str, process: int, recorder: Recorder, *, machine: Machine, stay: Sequence[int]
    ) -> None:
        """`stay` are the brokers that take over what it has."""
        super().__init__(world, name, process, recorder)
        self.stopping = False
        self.is_gone = False
        self.begins: Callable[[], None] = lambda: None
        self._machine = machine
        self._stay = stay
        self._begins_s = self.random.uniform(*LEAVES_S)

    async def run(self) -> None:
        """Begin at the drawn time, or when the faults end; return when no partition names the broker any more."""
        at_s = self.world.loop.time() + self._begins_s
        await until(lambda: self.stopping or self.world.loop.time() >= at_s)
        self.world.report(f"{self._machine.name} is to leave")
        self.begins()
        while self.named() != {} or not self._may_end():
            await self._move_away()
        await self._end()
        while not self.is_gone:
            await self._unregister()
        while self.named() != {}:
            await self._move_away()

    def named(self) -> dict[Key, PartitionImage] | None:
        """The partitions that name the broker, as the active controller knows them; None while there is none."""
        assert isinstance(self.world, ClusterWorld)
        image = self.world.active_image()
        if image is None:
            return None
        return {
            (topic.name, number): partition
            for topic in image.topics_by_id.values()
            for number, partition in topic.partitions.items()
            if self._machine.node_id in partition.replicas
        }

    def _may_end(self) -> bool:
        """Whether the broker itself has nothing either, and no other machine's disk is being replaced meanwhile."""
        broker = self._machine.broker
        return broker is not None and not list(broker.replicas) and self.world.may_die(self._machine)

    async def _move_away(self) -> None:
        """Request other replicas for the partitions of the broker, except those that move already."""
        wanted: dict[Key, Sequence[int] | None] = {}
        for key, partition in (self.named() or {}).items():
            if self._machine.node_id not in partition.removing_replicas:
                targets = [each for each in partition.replicas if each not in partition.removing_replicas]
                free = [each for each in self._stay if each not in targets]
                other = self.random.choice(free) if free else None
                moved = [other if each == self._machine.node_id else each for each in targets]
                wanted[key] = [each for each in moved if each is not None]
        with contextlib.suppress(OdradekError):  # the next round asks again
            if wanted:
                await move_replicas(self.cluster, wanted)
        await asyncio.sleep(RETRY_S)

    async def _end(self) -> None:
        """The process ends, and is not started again."""
        way = self.random.choice(ENDS)
        self.world.report(f"{self._machine.name} leaves: {way}")
        self.world.count("broker left")
        await self.world.end_for_good(self._machine, way)

    async def _unregister(self) -> None:
        try:
            await unregister_broker(self.cluster, self._machine.node_id)
            self.is_gone = True
        except ApiError as error:
            self.is_gone = error.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        except OdradekError:
            pass
        if not self.is_gone:
            await asyncio.sleep(RETRY_S)

    def still_known(self) -> list[str]:
        """A line for each node that still knows the broker, once its unregistration is acknowledged."""
        if not self.is_gone:
            return []
        nodes = [machine for machine in self.world.machines.values() if machine.broker is not None]
        return [
            f"{machine.name} still knows {self._machine.name}, which was unregistered"
            for machine in nodes
            if machine.broker is not None and self._machine.node_id in machine.broker.publisher.image.brokers
        ]
