"""The world in which each broker has two log directories, and replicas move between them all the time (KIP-113).

The promises are those of many nodes. A disk that fails here takes one directory of two along, and the broker goes on
with the other; somebody starts it again later, as the replica's place is known and nothing else may take it. Besides,
the marks of a partition never go back where a copy takes its log's place. In the end every replica is asked for in a
directory once more: its log must be there at last, in that directory alone, and the controller must know that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from odradek.client.admin import ConfigOperation, ResourceType, alter_configs
from odradek.client.cluster import check
from odradek.common.errors import OdradekError
from odradek.log.log import Log
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse
from odradek.replica.log_dir_driver import RATE
from odradek.replica.partition import Partition
from tests.sim import faults
from tests.sim.chaos_clients import ChaosClient
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.cluster_invariants import ClusterWatch
from tests.sim.cluster_world import DATA, METADATA, ClusterWorld
from tests.sim.one_node import PARTITIONS, TOPIC
from tests.sim.polling import until
from tests.sim.world import Machine, World

DIRECTORIES = (DATA / "one", DATA / "two")
OFFSETS_TOPIC = "__consumer_offsets"
# The topics whose replicas move; the second has as many partitions as the world gives it.
KEYS = (*((TOPIC, number) for number in range(PARTITIONS)), *((OFFSETS_TOPIC, number) for number in range(2)))
# Bytes in a second: as fast as it goes, or so slow that a move is seldom over before the next fault.
RATES = (None, "20000", "3000")
# The bytes of one copied piece: everything, or a batch or two.
PIECES = ("1048576", "400")
THROTTLED = 0.1
PAUSE_S = (0.02, 0.4)
# The probability that a look at the machines restarts a broker with a broken directory.
REPAIRED = 0.3
# The probability that a fault affects one directory's disk, and not both.
ONE_DISK = 0.6
Key = tuple[str, int]
_LOG = re.compile(r"^/data/(?P<directory>\w+)/(?P<log>[\w-]+-\d+)/")
_FUTURE = re.compile(r"^/data/\w+/[\w.-]+-future/")


class DirectoryMover(ChaosClient):
    """Moves replicas between the directories of their brokers, and starts brokers that have lost one."""

    def pause_s(self) -> float:
        return self.random.uniform(*PAUSE_S)

    async def finish(self) -> None:
        """Wait until every replica lies where it was asked for at last."""
        brokers = [machine for machine in self.world.machines.values() if machine.is_broker]
        for machine in brokers:
            await until(partial(self._throttle, machine, None))
        wanted = {(machine, key): self.random.choice(DIRECTORIES) for machine in brokers for key in KEYS}
        while missing := [each for machine in brokers for each in await self._misplaced(machine, wanted)]:
            for machine, key in missing:
                with contextlib.suppress(OdradekError):  # the next round asks again
                    await self._request_move(machine, key, wanted[machine, key])
            await asyncio.sleep(RETRY_S)

    async def act(self) -> None:
        brokers = [machine for machine in self.world.machines.values() if machine.is_broker]
        machine = self.random.choice(brokers)
        if broken_directories(machine) and self.random.random() < REPAIRED:
            self.world.count("directory repaired")
            await self._start_again(machine)
        elif self.random.random() < THROTTLED:
            await self._throttle(machine, self.random.choice(RATES))
        elif machine.running:
            for key in self.random.sample(KEYS, self.random.randint(1, len(KEYS))):
                await self._request_move(machine, key, self.random.choice(DIRECTORIES))
                self.world.count("move asked for")

    async def _throttle(self, machine: Machine, rate: str | None) -> bool:
        """Bound a broker's moves, or let them be as fast as they can; returns whether the broker acknowledged that."""
        operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
        with contextlib.suppress(OdradekError):
            node_id = str(machine.node_id)
            await alter_configs(self.cluster, ResourceType.BROKER, node_id, [(RATE, operation, rate)])
            return True
        return False

    async def _start_again(self, machine: Machine) -> None:
        self.world.report(f"somebody puts {broken_directories(machine)} of {machine.name} right")
        await self.world.stop_and_start(machine, self.random)

    async def _request_move(self, machine: Machine, key: Key, directory: Path) -> None:
        """Raises OdradekError: it is not there yet, or the broker does not do it now."""
        topic = AlterReplicaLogDirTopic(name=key[0], partitions=[key[1]])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(directory), topics=[topic])])
        connection = await self.cluster.connection_to(machine.node_id)
        response = await self.request(connection, request, AlterReplicaLogDirsResponse)
        check(response.results[0].partitions[0].error_code, f"{key[0]}-{key[1]} to {directory}")

    async def _misplaced(self, machine: Machine, wanted: dict[tuple[Machine, Key], Path]) -> list[tuple[Machine, Key]]:
        """The replicas that a broker reports in another directory; all where it reports nothing."""
        if broken_directories(machine):
            await self._start_again(machine)
        lies: dict[Key, list[Path]] = {}
        with contextlib.suppress(OdradekError):
            lies = await self._described(machine)
        return [each for each in wanted if each[0] is machine and lies.get(each[1]) != [wanted[each]]]

    async def _described(self, machine: Machine) -> dict[Key, list[Path]]:
        """The directories of each replica and its future replica, as a broker describes them. Raises OdradekError."""
        connection = await self.cluster.connection_to(machine.node_id)
        response = await self.request(connection, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        found: dict[Key, list[Path]] = {}
        for result in response.results:
            check(result.error_code, result.log_dir)
            for topic in result.topics:
                for partition in topic.partitions:
                    key = (topic.name, partition.partition_index)
                    found.setdefault(key, []).append(Path(result.log_dir))
        return found


def broken_directories(machine: Machine) -> list[str]:
    """The directories that a running broker has given up."""
    if machine.broker is None:
        return []
    return [str(each.path) for each in machine.broker.log_manager.directories if each.offline]


class WatchMoves(ClusterWatch):
    """The marks of a partition's log go on where a copy takes the log's place."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        super().__init__(world, recorder)
        # The log, the leader epoch and the marks by process and partition. No replica is removed in this world.
        self._before: dict[tuple[str, int, str], tuple[weakref.ref[Log], int, tuple[int, ...]]] = {}

    def _check_partition(self, machine: Machine, partition: Partition) -> None:
        super()._check_partition(machine, partition)
        log = partition.log
        marks = (log.log_start_offset, log.high_watermark, log.last_stable_offset)
        seen = (weakref.ref(log), partition.leader_epoch, (*marks, log.log_end_offset if partition.is_leader else 0))
        key = (machine.name, machine.starts, partition.name)
        before, self._before[key] = self._before.get(key), seen
        if before is None or before[0]() is log:
            return
        self._world.count("directory changed")
        same_leader_epoch = before[1] == seen[1]
        for what, then, now in zip(("start", "watermark", "stable offset", "end"), before[2], seen[2], strict=True):
            if now < then and (what != "end" or same_leader_epoch):
                self._wrong(machine, f"{partition.name}: with another log its {what} went back from {then} to {now}")


class DirectoriesWorld(ClusterWorld):
    """Machines of which one disk of two may be replaced by another one."""

    async def _stop(self, machine: Machine, random: Random) -> None:
        # Faults stop nodes, and so does who puts a directory right; one of them is enough.
        if all(task.get_name() != f"{machine.name} stops" for task in self.loop.tasks_of(machine.name)):
            await super()._stop(machine, random)

    async def _wipe(self, machine: Machine, random: Random) -> None:
        if not machine.is_broker or not await self._is_healthy():
            return
        if random.random() >= ONE_DISK:
            await self._replace_data(machine, {}, random, "wiped disk", "two empty disks")
            return
        lost = random.choice(DIRECTORIES)
        kept = {path: data for path, data in machine.disk.snapshot().items() if DATA in path.parents}
        kept = {path: data for path, data in kept.items() if lost not in path.parents}
        await self._replace_data(machine, kept, random, "wiped disk", f"an empty disk for {lost}")


class TwoDirectories(ManyNodes):
    """One run of a cluster whose brokers have two directories each."""

    world_name = "directories"

    @classmethod
    def make_world(cls, seed: int, swarm: faults.Swarm, on_event: Callable[[str], None] | None) -> ClusterWorld:
        settings = cls.settings | (cls.durable_settings if swarm.loses_power else {})
        return DirectoriesWorld(seed, swarm, settings=settings, on_event=on_event)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        own = {"log.dirs": ",".join(map(str, DIRECTORIES)), "metadata.log.dir": str(METADATA)}
        world.settings = {**world.settings, **own, "replica.fetch.max.bytes": self.random.choice(PIECES)}
        self.mover: DirectoryMover | None = None

    def make_watch(self) -> WatchMoves:
        self._watching = WatchMoves(self.world, self.recorder)
        return self._watching

    def more_clients(self) -> list[DirectoryMover]:
        self.mover = DirectoryMover(self.world, "mover", 8, self.recorder)
        return [self.mover]

    def unfinished(self) -> list[str]:
        return [*super().unfinished(), *self._misplaced()]

    def check_logs(self) -> list[str]:
        return [*super().check_logs(), *self._misplaced(), *self._left_over()]

    def _misplaced(self) -> Iterator[str]:
        """Replicas of which the controller believes that they lie elsewhere."""
        for machine in self.world.machines.values():
            broker = machine.broker
            if broker is None or not machine.is_broker:
                continue
            for partition in broker.replicas:
                known = broker.publisher.image.partition(partition.topic, partition.partition_id)
                lies = broker.log_manager.directory_of(partition.topic, partition.partition_id)
                if known is not None and known.directory(machine.node_id) != lies:
                    text = f"{partition.name} is in {partition.log.log_dir}, the controller knows another directory"
                    yield f"{machine.name}: {text}"

    def _left_over(self) -> Iterator[str]:
        """Logs in two directories, and copies that no move needs."""
        for machine in self.world.machines.values():
            lies: dict[str, str] = {}
            for path in map(str, sorted(machine.disk.snapshot())):
                if _FUTURE.match(path):
                    yield f"{machine.name}: {path} is left of a move"
                match = _LOG.match(path)
                if match is not None and lies.setdefault(match["log"], match["directory"]) != match["directory"]:
                    yield f"{machine.name}: {match['log']} is in two directories"
