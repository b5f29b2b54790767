"""The world in which disks change bytes that were written: a cluster that stops node by node.

Only one machine's replicas of each partition are ever damaged, so that two others have all records. A reader of that
machine must get the written bytes or an error, and in the end every replica has the written bytes: the usual checks of
the history, and the comparison of all logs byte by byte, verify it. Nodes stop cleanly here, because after a crash
recovery takes damage for a torn write and truncates it. A process does not verify bytes that it has written itself.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from random import Random

from odradek.client.connection import connect
from odradek.common.errors import ErrorCode, OdradekError
from odradek.protocol.codec import RecordsChunks
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.record.batch import HEADER_BYTES, BatchHeader
from odradek.record.reader import read_batches
from odradek.replica.partition import Partition
from tests.sim import faults
from tests.sim.clients import Client, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.cluster_invariants import ClusterWatch
from tests.sim.invariants import Watch
from tests.sim.one_node import TOPIC
from tests.sim.polling import until
from tests.sim.world import PORT, Machine, World

PAUSE_S = (0.3, 3.0)
FETCH_TIMEOUT_S = 5.0
# The fields from here on are under the checksum; the position of a batch shows damage before it.
COVERED_FROM = 21
CLEAN = Path("/data/.kafka_cleanshutdown")
_SEGMENT = re.compile(rf".*/(?P<log>{TOPIC}-(?P<partition>\d+))/\d{{20}}\.log$")


class Vandal(Client):
    """Changes bytes of committed batches, and asks for each of them in the end."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False
        self._victims: dict[str, Machine] = {}
        # (machine, partition, base offset) of what was damaged and not seen whole since.
        self.damaged: list[tuple[Machine, int, int]] = []

    async def run(self) -> None:
        """Stop one node after the other, and damage the files on its disk."""
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
            brokers = [machine for machine in self.world.machines.values() if machine.broker is not None]
            brokers = [machine for machine in brokers if machine.is_broker]
            if brokers:
                await self._visit(self.random.choice(brokers))

    async def _visit(self, machine: Machine) -> None:
        assert machine.broker is not None
        marks = {partition.name: partition.log.high_watermark for partition in machine.broker.replicas}
        stop = asyncio.get_running_loop().create_task(self.world.stop_and_start(machine, self.random))
        while machine.running and not stop.done():  # noqa: ASYNC110 - the world decides, and notifies no one
            await asyncio.sleep(0.01)
        if not machine.running and machine.disk.exists(CLEAN):
            for _ in range(self.random.randint(1, 4)):
                self._damage(machine, marks)
        await stop

    def _damage(self, machine: Machine, marks: dict[str, int]) -> None:
        """Change a batch below a watermark (exclusive), by partition."""
        found: list[tuple[Path, int, BatchHeader, str, int]] = []
        for path, data in sorted(machine.disk.snapshot().items()):
            match = _SEGMENT.match(str(path))
            if match is None or self._victims.get(match["log"], machine) is not machine:
                continue
            for position, header in read_batches(data):
                if header.last_offset < marks.get(match["log"], 0):
                    found.append((path, position, header, match["log"], int(match["partition"])))
        if not found:
            return
        path, position, header, log, partition = self.random.choice(found)
        self._victims[log] = machine
        self._change(machine.disk.seen(path), position, header)
        self.damaged.append((machine, partition, header.base_offset))
        self.world.count("damaged batch")
        self.world.report(f"{log} is damaged on {machine.name} at offset {header.base_offset}")

    def _change(self, content: bytearray, position: int, header: BatchHeader) -> None:
        """A flipped bit, zeros over the rest of the batch, or a batch whose frame is lost."""
        how = self.random.random()
        if how < 0.6:
            at = self.random.randrange(position + COVERED_FROM, position + header.size_bytes)
            content[at] ^= 1 << self.random.randrange(8)
        elif how < 0.85:
            at = position + self.random.randrange(HEADER_BYTES, header.size_bytes)
            content[at] ^= 0xFF
            content[at + 1 : position + header.size_bytes] = bytes(position + header.size_bytes - at - 1)
        else:
            content[position : position + HEADER_BYTES] = bytes(HEADER_BYTES)

    def was_at(self, machine: Machine, log: str) -> bool:
        """Whether a machine's copy of a log was ever damaged."""
        return self._victims.get(log) is machine

    async def seen_whole(self) -> None:
        """Ask each machine for what was damaged on it, until it has it again."""
        for machine, partition, offset in tuple(self.damaged):
            await until(partial(self._is_served, machine, partition, offset))
            self.damaged.remove((machine, partition, offset))

    async def _is_served(self, machine: Machine, partition: int, offset: int) -> bool:
        """Whether a machine serves an offset to a consumer; a follower does as well."""
        try:
            connection = await connect(self.network, machine.name, PORT, client_id=self.name, timeout_s=FETCH_TIMEOUT_S)
            try:
                known = next(iter(self.world.machines.values()))
                image = known.broker.publisher.image if known.broker is not None else None
                topic = None if image is None else image.topic(TOPIC)
                if topic is None:
                    return False
                asked = FetchPartition(
                    partition=partition, fetch_offset=offset, current_leader_epoch=-1, partition_max_bytes=1
                )
                request = FetchRequest(
                    max_wait_ms=0,
                    max_bytes=1,
                    topics=[FetchTopic(topic=TOPIC, topic_id=topic.topic_id, partitions=[asked])],
                    session_epoch=-1,
                )
                response = await connection.request(request, FetchResponse, timeout_s=FETCH_TIMEOUT_S)
            finally:
                connection.close()
        except OdradekError:
            return False
        if response.error_code or response.responses[0].partitions[0].error_code not in (
            ErrorCode.NONE,
            ErrorCode.OFFSET_OUT_OF_RANGE,  # retention was here meanwhile
        ):
            return False
        answer = response.responses[0].partitions[0]
        assert not isinstance(answer.records, RecordsChunks), "what was received is bytes"
        return answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or bool(answer.records)


class WatchElsewhere(ClusterWatch):
    """Looks at all logs but those that are damaged on purpose; these are compared in the end."""

    def __init__(self, world: World, recorder: Recorder, vandal: Vandal) -> None:
        super().__init__(world, recorder)
        self._vandal = vandal

    def _check_partition(self, machine: Machine, partition: Partition) -> None:
        if not self._vandal.was_at(machine, partition.name):
            super()._check_partition(machine, partition)

    def _check_acknowledged(self, machine: Machine, partition: Partition) -> None:
        if not self._vandal.was_at(machine, partition.name):
            super()._check_acknowledged(machine, partition)


class DamagedCluster(ManyNodes):
    """One run of a cluster whose disks change what was written."""

    world_name = "damaged"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._vandal = Vandal(world, "vandal", 8, self.recorder)

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        """Draw the usual faults of networks and clocks, and none that ends a process or loses written bytes."""
        drawn = faults.draw(random, without, copies=False)
        rates = {kind: every for kind, every in drawn.every_s.items() if kind in ("pause", "cut", "clock", "drift")}
        drawn.every_s = {**dict.fromkeys(faults.KINDS, 0.0), **rates}
        drawn.loses_power = False
        for kind in (*faults.DISK_ERRORS, "short_write"):
            setattr(drawn.disk, kind, 0.0)
        return drawn

    def make_watch(self) -> Watch:
        return WatchElsewhere(self.world, self.recorder, self._vandal)

    def more_clients(self) -> list[Vandal]:
        return [self._vandal]

    async def converge(self) -> None:
        """Damaged batches are whole again, and then all nodes agree."""
        await self._vandal.seen_whole()
        await super().converge()

    def unfinished(self) -> list[str]:
        damaged = [f"{machine.name}: {TOPIC}-{number} at {at}" for machine, number, at in self._vandal.damaged]
        return [*(f"damaged still: {text}" for text in damaged), *super().unfinished()]
