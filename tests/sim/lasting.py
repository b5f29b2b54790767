"""The world of transactions that live long: over elections, restarts, rolled segments, snapshots and expired producers.

Each writer keeps a transaction open for seconds, while brokers die, stop, lose power and disks, and are cut off; so it
outlives several leaders of its partitions and of its coordinator. Some writers are patient: nothing but a clock that
jumps ends their transactions over their heads. Those of the others time out, and now and then one dies with its
transaction open and never comes back, or comes back as who it was. Producers without a transaction and idle
transactional ids expire within seconds. Meanwhile clients read committed records and all records, and request the last
stable offset: the records of a transaction that they read, and the stable offsets, must fit its outcome.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, ClassVar

from odradek.client.cluster import check
from odradek.common.errors import OdradekError
from odradek.protocol.messages import list_offsets_request as list_offsets
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.copiers import Ledger, TransactionalWriter
from tests.sim.history import Marks, Operation, Outcome, Rules, find_anomalies, first
from tests.sim.one_node import Admin
from tests.sim.producers import ProducersCluster
from tests.sim.readers import LATEST, Reader
from tests.sim.transactional import PARTITIONS, TOPIC
from tests.sim.world import World

PATIENT_MS, IMPATIENT_MS = 600_000, 3_000
WRITES = (2, 9)
RESTS_S = (0.0, 0.1, 0.6, 1.5)
# The probability that an impatient writer dies in a transaction; half of them return with the same transactional id.
DIES = 0.25
READ_COMMITTED = 1


class LastingWriter(TransactionalWriter):
    """Takes its time for a transaction, and may die in one.

    Args:
        all_there: gets each batch as a write of its own, also if its transaction is aborted.
    """

    def __init__(self, *arguments: Any, all_there: Recorder, patient: bool, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.timeout_ms = PATIENT_MS if patient else IMPATIENT_MS
        self._patient = patient
        self._all_there = all_there
        self._lives = 0

    async def run(self) -> None:
        """As its base. A patient one whose last write was refused ends what may be open by a start of its own: nothing
        else does before its ten minutes are over."""
        await super().run()
        while self._patient and self._identity[0] < 0 and self._id in self._given:
            try:
                await self._init()
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def _write_all(self, operation: Operation) -> None:
        for _ in range(self.random.randint(*WRITES)):
            await self._write(operation, self.random.randrange(self._partitions))
            if self.stopping:
                return
            await asyncio.sleep(self.random.choice(RESTS_S))

    async def _write(self, operation: Operation, partition: int) -> None:
        known = len(operation.steps)
        written = Operation(self.process, Outcome.INFO, [], invoked=self._all_there.invoke())
        try:
            await super()._write(operation, partition)
            written.outcome = Outcome.OK
        finally:
            written.steps = [*operation.steps[known:]]
            self._all_there.complete(written)

    async def _end(self, commit: bool, *, begun: bool = False) -> Outcome:
        if self._patient or self.stopping or self.random.random() >= DIES:
            return await super()._end(commit, begun=begun)
        self.world.report(f"{self.name} dies in a transaction")
        self._identity = (-1, -1)
        if self.random.random() < 0.5:
            self._lives += 1
            self._id = f"{self.name}-{self._lives}"
        # Its commit was never asked for.
        return Outcome.FAIL


class Onlooker(Reader):
    """Asks again and again how far a partition is stable, and how far it goes."""

    async def run(self) -> None:
        """Ask until `stopping`."""
        while not self.stopping:
            try:
                await self._find_leaders()
                for (topic, partition), node_id in list(self._leaders.items()):
                    await self._read_marks(topic, partition, node_id)
            except OdradekError:
                self.close_connections()
            await asyncio.sleep(RETRY_S)

    async def _read_marks(self, topic: str, partition: int, node_id: int) -> None:
        connection = await self.cluster.connection_to(node_id)
        source = self.network.process_at(connection)
        ends = []
        for isolation_level in (READ_COMMITTED, 0):
            asked = list_offsets.ListOffsetsPartition(
                partition_index=partition, timestamp=LATEST, current_leader_epoch=-1
            )
            request = list_offsets.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])],
            )
            invoked = self.recorder.invoke()
            answer = (await self.request(connection, request, ListOffsetsResponse, 6)).topics[0].partitions[0]
            check(answer.error_code, f"{topic}-{partition}")
            stable, watermark = (answer.offset, -1) if isolation_level else (-1, answer.offset)
            marks = Marks(f"{topic}-{partition}", source, answer.leader_epoch, watermark, stable)
            self.recorder.complete(Operation(self.process, Outcome.OK, [marks], invoked=invoked))
            ends.append(answer.offset)
        if ends[0] > ends[1]:
            self.problem(f"{topic}-{partition} is stable up to {ends[0]}, and ends at {ends[1]}")


class LastingCluster(ProducersCluster):
    """One run."""

    world_name = "lasting"
    salt = 0x1A57
    trouble_s = (10.0, 22.0)
    settings: ClassVar[dict[str, str]] = {
        **ProducersCluster.settings,
        "producer.id.expiration.ms": "1500",
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # Each batch as a write of its own, and the polls of readers of all records; the rest is in `recorder`.
        self._all_there = Recorder()
        self._reader: Reader | None = None

    def writers(self, ledger: Ledger) -> list[TransactionalWriter]:
        values = itertools.count(1)
        return [
            LastingWriter(
                self.world,
                f"{'patient' if patient else 'impatient'}-{version}",
                number,
                self.recorder,
                topic=TOPIC,
                partitions=PARTITIONS,
                transactional_id=f"lasting-{number}",
                version=version,
                fights=True,
                values=values,
                ledger=ledger,
                all_there=self._all_there,
                patient=patient,
            )
            for number, (patient, version) in enumerate(itertools.product((True, False), (0, 2)), 1)
        ]

    async def more_writers(self, admin: Admin, configs: dict[str, str]) -> list[Any]:
        """The reader of all records, and the client that requests end offsets; no more writers."""
        self._reader = Reader(self.world, "all-reader", 8, self._all_there, partitions=_keys(), sessions=False)
        return [self._reader, Onlooker(self.world, "onlooker", 10, self.recorder, partitions=_keys(), sessions=False)]

    async def converge(self) -> None:
        """Read all records, aborted ones included, to the end."""
        assert self._reader is not None
        while True:
            try:
                await self._reader.drain()
                break
            except OdradekError:
                await asyncio.sleep(RETRY_S)
        await super().converge()

    def verdict(self) -> None:
        super().verdict()
        self.recorder.problems += [f"of all that is there: {text}" for text in self._all_there.problems]
        findings = find_anomalies(self._all_there.history, Rules(read_committed=False, one_coordinator=False))
        if findings:
            self.recorder.problems.append(f"of all that is there: {first(findings)}")


def _keys() -> list[tuple[str, int]]:
    return [(TOPIC, number) for number in range(PARTITIONS)]
