"""The world of transactions: one node, writers of both generations, two that fight over an id, a committed reader."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, ClassVar

from odradek.common.errors import OdradekError
from tests.sim.clients import RETRY_S
from tests.sim.copiers import CommittedReader, Ledger, TransactionalWriter
from tests.sim.history import Rules, find_anomalies, first
from tests.sim.inspector import Inspector
from tests.sim.invariants import check_disk
from tests.sim.one_node import PROGRESS_S, Admin
from tests.sim.progress import progress
from tests.sim.runs import Scenario

TOPIC = "paid"
PARTITIONS = 2
TROUBLE_S = (5.0, 15.0)
DRAIN_S = 60.0
# The probability that a writer of the older protocol has several connections to its coordinator.
SPLITS = 0.5
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "2",
}


class TransactionalNode(Scenario):
    """One run."""

    world_name = "transactions"
    salt = 0x7A51
    settings = SETTINGS
    trouble_s = TROUBLE_S
    copies = 1
    topic = TOPIC
    partitions = PARTITIONS
    reader_kind: ClassVar[type[CommittedReader]] = CommittedReader
    durable_settings: ClassVar[dict[str, str]] = {"log.flush.interval.messages": "1"}

    async def run(self) -> None:
        """Everything from the first start to the last read; problems are in the recorder."""
        async with self.watched():
            await self._run()
        self.verdict()

    async def _run(self) -> None:
        world, ledger = self.world, Ledger()
        self.add_machines()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, self.recorder, copies=self.copies)
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1), **self.topic_configs()}
        if world.swarm.loses_power:
            configs["flush.messages"] = "1"
        await admin.create_surely(self.topic, PARTITIONS, configs)
        writers = self.writers(ledger)
        reader = self.make_reader(ledger)
        clients: list[Any] = [*writers, reader, *await self.more_writers(admin, configs)]
        tasks = [world.loop.spawn(client.name, client.run(), name=client.name) for client in clients]
        await world.make_trouble(self.random.uniform(*self.trouble_s))
        world.heal()
        for client in clients:
            client.stopping = True

        inspector = Inspector(world, "inspector", 70, self.recorder)

        def who_waits() -> str:
            waiting = [client.name for client, task in zip(clients, tasks, strict=True) if not task.done()]
            positions = {f"{topic}-{number}": at for (topic, number), at in reader.positions.items()}
            return f"waiting: {waiting + self.unfinished() + inspector.differs}; read up to {positions}"

        async with progress(world.loop, PROGRESS_S, who_waits, self.recorder.problems):
            await asyncio.gather(*tasks)
            await self.drain(reader)
            producers = dict(given for writer in writers for given in writer.producers)
            await inspector.see_transactions_ended(producers, self.topic, self.partitions)
            await self.converge()
        for client in clients:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    def topic_configs(self) -> dict[str, str]:
        """The settings of the checked topic, beside those of every world."""
        return {}

    def make_reader(self, ledger: Ledger) -> CommittedReader:
        """A read_committed consumer, while the faults last and to the end."""
        kind = self.reader_kind
        return kind(self.world, "reader", 9, self.recorder, topic=self.topic, partitions=PARTITIONS, ledger=ledger)

    def add_machines(self) -> None:
        """Put the nodes into the world; they are not started here."""
        self.world.add_machine("node-1", 1)

    async def more_writers(self, admin: Admin, configs: dict[str, str]) -> list[Any]:
        """Clients of a world that builds on this one."""
        return []

    async def converge(self) -> None:
        """Return once all nodes agree; one node does."""

    def unfinished(self) -> list[str]:
        """The conditions that `converge` still waits for."""
        return []

    def check_logs(self) -> list[str]:
        """Violations in the logs on the disks when everything is over."""
        return [problem for machine in self.world.machines.values() for problem in check_disk(machine)]

    def writers(self, ledger: Ledger) -> list[TransactionalWriter]:
        values = itertools.count(1)
        fighting, splits = self.random.choice((0, 2)), self.random.random() < SPLITS
        roles = [("new", 2, False), ("old", 0, False), ("left", fighting, True), ("right", fighting, True)]
        return [
            TransactionalWriter(
                self.world,
                name,
                number,
                self.recorder,
                topic=TOPIC,
                partitions=PARTITIONS,
                transactional_id="contested" if fights else name,
                version=version,
                # A coordinator that does not know yet that it has a successor may say what was committed before.
                fights=fights or self.copies > 1,
                splits=name == "old" and splits,
                values=values,
                ledger=ledger,
            )
            for number, (name, version, fights) in enumerate(roles, 1)
        ]

    async def drain(self, reader: Any) -> None:
        """Read to the end of everything: a transaction that hangs keeps the reader from it."""
        while True:
            try:
                ends = await reader.end_offsets()
                while any(reader.positions[key] < end for key, end in ends.items()):
                    await reader.poll(max_wait_ms=100)
                return
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    def verdict(self) -> None:
        """Check the history of the clients, and the disks."""
        alone = self.copies == 1
        rules = Rules(idempotent=True, read_committed=True, assigned=True, drained=True, one_coordinator=alone)
        findings = find_anomalies(self.recorder.history, rules)
        if findings:
            self.recorder.problems.append(first(findings))
        self.recorder.problems += self.check_logs()
