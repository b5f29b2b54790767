"""The world in which a group copies a topic exactly once, while the brokers of the cluster are killed and cut off.

Two or three members of the consumer protocol, or of both protocols (`protocol_migration`), read the records of the
producers, and write them to a second topic in transactions that hold their group's offsets. When all faults are over, a
read_committed consumer must find there what the first topic holds: all of it, once, in its order.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, ClassVar

from odradek.common.errors import OdradekError
from odradek.protocol.messages.fetch_response import PartitionData
from tests.sim import faults
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.consumers import Collector, Copier, Ownership
from tests.sim.copiers import FollowingReader, Ledger
from tests.sim.disk import DiskFaults
from tests.sim.one_node import PARTITIONS, TOPIC, Admin
from tests.sim.protocol_migration import RolledCopier, RolledOwnership
from tests.sim.transactional import SETTINGS as TRANSACTION_SETTINGS
from tests.sim.world import World

COPY = "copied"
GROUP = "copiers"
LOOK_S = 0.2
# The probability that a world which loses responses has no other faults.
LOST_ALONE = 0.5
# The probability that members change the protocol of their group.
ROLLED = 0.5
SETTINGS = {
    **TRANSACTION_SETTINGS,
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "200",
}


class Onlooker(FollowingReader):
    """Reads the copies as they are committed, and keeps them."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder, ledger: Ledger) -> None:
        super().__init__(world, name, process, recorder, topic=COPY, partitions=PARTITIONS, ledger=ledger)
        self.found: dict[tuple[str, int], list[int]] = {(COPY, number): [] for number in range(PARTITIONS)}

    def _committed(self, topic: str, answer: PartitionData) -> list[tuple[int, int]]:
        found = super()._committed(topic, answer)
        self.found[topic, answer.partition_index] += [value for _, value in found]
        return found


class Copying:
    """The copiers and their onlooker: a client of the world, as the mover is."""

    def __init__(self, world: World, recorder: Recorder, admin: Admin, random: Any) -> None:
        self.world = world
        self.name = "copying"
        self.network = admin.network
        self.stopping = False
        self._admin = admin
        self._recorder = recorder
        self._ledger = Ledger()
        self._onlooker = Onlooker(world, "onlooker", 61, recorder, self._ledger)
        is_rolled = random.random() < ROLLED
        kind: Any = RolledCopier if is_rolled else Copier
        ownership = RolledOwnership(world) if is_rolled else Ownership()
        self.copiers: list[Copier] = [
            kind(
                world,
                f"copier-{number}",
                50 + number,
                recorder,
                source=TOPIC,
                topic=COPY,
                partitions=PARTITIONS,
                group=GROUP,
                version=random.choice((0, 2, 2)),
                ledger=self._ledger,
                ownership=ownership,
            )
            for number in range(1, 1 + random.randint(2, 3))
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        if world.swarm.loses_power:
            self._configs["flush.messages"] = "1"

    async def run(self) -> None:
        """Make the topic and start everybody; they go on when the others stop."""
        await self._admin.create_surely(COPY, PARTITIONS, self._configs)
        everybody: list[Copier | Onlooker] = [*self.copiers, self._onlooker]
        self._tasks = [self.world.loop.spawn(each.name, each.run(), name=each.name) for each in everybody]
        while True:
            await asyncio.sleep(LOOK_S)
            if self.stopping:
                return

    def unfinished(self) -> list[str]:
        """The readers that have not come to the end."""
        everybody: list[Copier | Onlooker] = [*self.copiers, self._onlooker]
        return [
            f"{each.name}, copied up to {[each.copied((TOPIC, number)) for number in range(PARTITIONS)]}"
            if isinstance(each, Copier)
            else f"{each.name}, read up to {list(each.positions.values())}"
            for each, task in zip(everybody, self._tasks, strict=False)
            if not task.done()
        ]

    async def finish(self) -> None:
        """Wait until everything is copied, and compare; all producers must have ended."""
        source = Collector(self.world, "source", 62, self._recorder, [(TOPIC, number) for number in range(PARTITIONS)])
        await _surely(source.drain)
        ends = dict(source.positions)
        for copier in self.copiers:
            copier.ends = ends
        left = dict(ends)
        while left:
            await asyncio.sleep(LOOK_S)
            left = {key: end for key, end in left.items() if all(each.copied(key) < end for each in self.copiers)}
        for copier in self.copiers:
            copier.done = True
        self._onlooker.stopping = True
        await asyncio.gather(*self._tasks)
        await _surely(self._onlooker.drain)
        for number in range(PARTITIONS):
            wanted = [value for _, value in source.found.get((TOPIC, number), [])]
            self._compare(number, wanted, self._onlooker.found[COPY, number])

    def _compare(self, number: int, wanted: list[int], found: list[int]) -> None:
        if wanted == found:
            return
        missing = sorted(set(wanted) - set(found))
        twice = sorted(value for value in set(found) if found.count(value) > wanted.count(value))
        at = next(
            (at for at, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b), min(map(len, (wanted, found)))
        )
        self._recorder.problems.append(
            f"{COPY}-{number} holds {len(found)} records for the {len(wanted)} of {TOPIC}-{number}: "
            f"missing {missing[:5]}, too often {twice[:5]}, they part at record {at}"
        )


async def _surely(work: Any) -> None:
    while True:
        try:
            await work()
            return
        except OdradekError:
            await asyncio.sleep(RETRY_S)


class CopyingCluster(ManyNodes):
    """One run of a cluster in which a topic is copied."""

    world_name = "copying"
    durable_settings: ClassVar[dict[str, str]] = ManyNodes.durable_settings

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        """Draw no other faults in half of the seeds that lose responses: a group that lives on has many heartbeats, and
        no other coordinator makes up for a lost response."""
        drawn = super().draw(random, without)
        if drawn.network.losing and random.random() < LOST_ALONE:
            drawn.every_s = dict.fromkeys(faults.KINDS, 0.0)
            drawn.disk, drawn.buggify = DiskFaults(), 0.0
            drawn.network.stall = drawn.network.reset = 0.0
        return drawn

    def __init__(self, world: World) -> None:
        world.settings = {**SETTINGS, **world.settings}
        super().__init__(world)
        self._copying: Copying | None = None

    def more_clients(self) -> list[Copying]:
        """The copiers of the first topic, beside its producers and readers."""
        admin = Admin(self.world, "copying-admin", 60, self.recorder, copies=self.copies)
        self._copying = Copying(self.world, self.recorder, admin, self.random)
        return [self._copying]

    async def converge(self) -> None:
        """Wait until everything is copied, and then until all nodes agree."""
        assert self._copying is not None
        await self._copying.finish()
        await super().converge()

    def unfinished(self) -> list[str]:
        copying = [] if self._copying is None else self._copying.unfinished()
        return [*copying, *super().unfinished()]
