"""The world of a compacted topic that is written in transactions: each key reads as its last committed value left it.

Three brokers clean their copies on their own, several times a second, while transactions with values and tombstones
are open, commit and abort, and while brokers die, stop, lose power and disks and are cut off. Every key has one
writer, so what it must read as is known. A reader of committed records begins at the first offset again and again: it
finds of each key what was committed before it began, or something newer, at the offset that was acknowledged. When all
faults are over, every broker leads once, and each copy must read as it was left.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from odradek.common.errors import OdradekError
from odradek.protocol.messages import fetch_request as fetch
from odradek.protocol.messages.fetch_response import PartitionData
from odradek.record.record import Record
from tests.sim.clients import RETRY_S, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.cluster_invariants import different_logs
from tests.sim.copiers import FollowingReader, Ledger, TransactionalWriter
from tests.sim.history import Operation, Outcome, Send
from tests.sim.readers import Link
from tests.sim.transactional import SETTINGS, TransactionalNode
from tests.sim.world import World

TOPIC = "keyed"
WRITERS = 3
KEYS = 4
# A writer's number that can be divided by this belongs to a key of its own, which is seldom written.
SELDOM = 30
# A number that can be divided by this is a tombstone.
TOMBSTONES = 7
RESTS_S = (0.0, 0.0, 0.1, 0.5)
WHOLE_LOG_BYTES = 1 << 20
NEVER_WRITTEN = 0
# Longer than any run.
LONG_MS = 3_600_000
Key = tuple[int, int]
# Beside everything else: a copy is cleaned twice before it is read.
QUIET_S = 1.5


def key_of(number: int) -> int:
    """The key of a number, of its writer alone."""
    writer, turn = number % WRITERS, number // WRITERS
    return writer + WRITERS * (KEYS if turn % SELDOM == 0 else turn % KEYS)


def is_tombstone(number: int) -> bool:
    return number % TOMBSTONES == 0


class KeyAccount(Recorder):
    """The committed values of each key of each partition; other operations go into the world's history."""

    def __init__(self, history: Recorder) -> None:
        super().__init__()
        self._history = history
        # Whether tombstones and markers, which a slow reader needs, stay for the whole run.
        self.keeps_all = False
        # The values that a key may read as: its last committed number, and those behind it whose commit is not known.
        self.allowed: dict[Key, list[int]] = {}
        # All values that a key may have read as at any time.
        self.past: dict[Key, set[int]] = {}
        # The furthest number of each key that was sent.
        self.sent: dict[Key, list[int]] = {}
        self.offsets: dict[tuple[int, int], int] = {}
        # The offsets behind all records that are known to be committed.
        self.ends: dict[int, int] = {}

    def invoke(self) -> int:
        return self._history.invoke()

    def complete(self, operation: Operation) -> None:
        if not operation.transactional:
            self._history.complete(operation)
            return
        for step in operation.steps:
            assert isinstance(step, Send)
            partition = int(step.partition.rpartition("-")[2])
            key = (partition, key_of(step.value))
            if step.offset is not None:
                self.offsets[partition, step.value] = step.offset
            if operation.outcome in (Outcome.OK, Outcome.INFO):
                self.past.setdefault(key, {NEVER_WRITTEN}).add(step.value)
            if operation.outcome is Outcome.OK:
                self.allowed[key] = [step.value]
                self.ends[partition] = max(self.ends.get(partition, 0), (step.offset or 0) + 1)
            elif operation.outcome is Outcome.INFO:
                self.allowed.setdefault(key, [NEVER_WRITTEN]).append(step.value)

    def is_sending(self, partition: int, number: int) -> None:
        """A number is about to be sent."""
        self.sent.setdefault((partition, key_of(number)), []).append(number)

    def wrong(self, before: dict[Key, list[int]], found: dict[Key, int]) -> list[str]:
        """A line for each key that reads as no value that it could have had since the reader began."""
        return [
            f"key {key} of partition {partition} reads as {found.get((partition, key), 'nothing')}, not as {allowed}"
            for (partition, key), allowed in before.items()
            if not self._may_be((partition, key), allowed, found.get((partition, key), NEVER_WRITTEN))
        ]

    def _may_be(self, key: Key, allowed: list[int], found: int) -> bool:
        later = [number for number in self.sent.get(key, ()) if number > max(allowed)]
        if found in allowed or found in later:
            return True
        if self.keeps_all or not any(is_tombstone(number) for number in (*allowed, *later)):
            return False
        # Records below a tombstone may be gone, and the tombstone itself. A copy that was away for longer than
        # tombstones are kept never gets this one, and keeps what it deletes, as in Kafka.
        return found in self.past[key]


class KeyedWriter(TransactionalWriter):
    """Writes numbers under keys, and tombstones; takes its time now and then."""

    def __init__(self, *arguments: Any, account: KeyAccount, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._account = account

    async def _write_all(self, operation: Operation) -> None:
        for _ in range(self.random.randint(1, 4)):
            await self._write(operation, self.random.randrange(self._partitions))
            await asyncio.sleep(self.random.choice(RESTS_S))

    def _record_of(self, partition: int, number: int) -> Record:
        self._account.is_sending(partition, number)
        value = None if is_tombstone(number) else b"%d" % number
        headers = (("number", b"%d" % number),)
        return Record(b"key-%d" % key_of(number), value, headers, self.clock.now_ms())


class KeyReader(FollowingReader):
    """Reads the whole topic again and again, as a client that builds a table from it does."""

    def __init__(self, *arguments: Any, account: KeyAccount, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._account = account
        self._found: dict[Key, int] = {}
        self._reported_lso: dict[tuple[str, int], int] = {}
        self._suspected: set[str] = set()

    async def run(self) -> None:
        """Read all until `stopping`."""
        while not self.stopping:
            await self.read_all(lambda: self.stopping)
            await asyncio.sleep(self.random.choice(RESTS_S))

    async def read_all(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Read once from the first offset to the last stable offset, and check the result.

        If markers may be cleaned away between two fetches of a reading, two readings in a row must find the same error.
        """
        before = {key: [*allowed] for key, allowed in self._account.allowed.items()}
        target = {(TOPIC, partition): end for partition, end in self._account.ends.items()}
        self._begin()
        while any(at < max(target.get(key, 0), self._reported_lso.get(key, 1)) for key, at in self.positions.items()):
            if is_over():
                return
            try:
                await self.poll(max_wait_ms=100)
            except OdradekError:
                self.close_connections()
                await asyncio.sleep(RETRY_S)
        wrong = self._account.wrong(before, self._found)
        for text in wrong:
            if self._account.keeps_all or text.partition(" reads")[0] in self._suspected:
                self.problem(text)
        self._suspected = {text.partition(" reads")[0] for text in wrong}

    async def read_twice(self) -> None:
        """Read everything twice, as a reading confirms a suspicion of the one before."""
        await self.read_all()
        await self.read_all()

    def _begin(self) -> None:
        self._found.clear()
        for key in self.positions:
            self.positions[key] = 0
            self._dropping[key].clear()
            self._markers[key].clear()

    def _request(self, link: Link, wait_ms: int) -> fetch.FetchRequest:
        request = super()._request(link, wait_ms)
        if self._account.keeps_all:
            return request
        request.max_bytes = WHOLE_LOG_BYTES
        for topic in request.topics:
            for each in topic.partitions:
                each.partition_max_bytes = WHOLE_LOG_BYTES
        return request

    def _committed(self, topic: str, answer: PartitionData) -> list[tuple[int, int]]:
        key = (topic, answer.partition_index)
        found = super()._committed(topic, answer)
        self._reported_lso[key] = max(self._reported_lso.get(key, 0), answer.last_stable_offset)
        for offset, number in found:
            known = self._account.offsets.get((answer.partition_index, number), offset)
            if known != offset:
                self.problem(f"{topic}-{answer.partition_index}: {number} was stored at {known}, and is at {offset}")
            self._found[answer.partition_index, key_of(number)] = number
        return found

    def _number_of(self, record: Record) -> int:
        return int(record.headers[0][1] or b"")

    def _record(self, invoked: int, polls: list[Any], marks: list[Any]) -> None:
        """Record no polls in the history: values are deleted when newer ones supersede them."""
        super()._record(invoked, [], marks)


class KeyedCluster(TransactionalNode, ManyNodes):
    """One run."""

    world_name = "keyed"
    salt = 0x4E7D
    copies = ManyNodes.copies
    topic = TOPIC
    settings: ClassVar[dict[str, str]] = {
        **SETTINGS,
        "log.cleaner.backoff.ms": "200",
        "log.flush.offset.checkpoint.interval.ms": "500",
    }
    add_machines = ManyNodes.add_machines
    unfinished = ManyNodes.unfinished

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._account = KeyAccount(self.recorder)

    def topic_configs(self) -> dict[str, str]:
        retention_ms = self.random.choice((1000, LONG_MS))
        self._account.keeps_all = retention_ms == LONG_MS and not self.world.swarm.every_s["clock"]
        return {
            "cleanup.policy": "compact",
            "segment.ms": "300",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(retention_ms),
            "file.delete.delay.ms": "100",
        }

    def make_reader(self, ledger: Ledger) -> KeyReader:
        self._reader = KeyReader(
            self.world,
            "reader",
            9,
            self.recorder,
            topic=TOPIC,
            partitions=self.partitions,
            ledger=ledger,
            account=self._account,
        )
        return self._reader

    def writers(self, ledger: Ledger) -> list[TransactionalWriter]:
        def numbers(writer: int) -> Iterable[int]:
            return itertools.count(WRITERS + writer, WRITERS)

        return [
            KeyedWriter(
                self.world,
                f"writer-{writer}",
                writer,
                self._account,
                topic=TOPIC,
                partitions=self.partitions,
                transactional_id=f"keys-{writer}",
                version=self.random.choice((0, 2)),
                fights=True,
                values=numbers(writer),
                ledger=ledger,
                account=self._account,
            )
            for writer in range(WRITERS)
        ]

    async def drain(self, reader: Any) -> None:
        """Read all, and once more after cleanings in peace."""
        await reader.read_twice()
        await asyncio.sleep(QUIET_S)
        await reader.read_twice()

    async def converge(self) -> None:
        """Read the topic from each broker in turn, while the one before is killed: every replica must be as good."""
        await ManyNodes.converge(self)
        for machine in [each for each in self.world.machines.values() if each.is_broker]:
            self.world.report(f"kill -9 {machine.name}, to read from the others")
            machine.kill()
            await self._reader.read_twice()
            machine.start()
            await ManyNodes.converge(self)

    def verdict(self) -> None:
        super().verdict()
        self.recorder.problems += self._account.problems
        for machine in self.world.machines.values():
            if machine.broker is not None and machine.is_broker:
                uncleanable = [reason for _, reason, _ in machine.broker.cleaner.uncleanable.values()]
                self.recorder.problems += [f"{machine.name} left a log alone: {reason}" for reason in uncleanable]

    def check_logs(self) -> list[str]:
        """Compare the copies of the log record by record, as a compacted log has gaps."""
        return different_logs(self.world)
