"""The world of one node with a compacted topic: each key reads as it was left, also if a cleaning is interrupted.

One idempotent writer owns all keys, and sends until all is acknowledged; so the value of a key in the
end is known exactly. Every few hundred milliseconds the log rolls and is cleaned, and machines die meanwhile.
At last it writes under other keys than the deleted ones, until the tombstones of these must be gone.
Beside it compacted topics are deleted and made again while they are cleaned, which is no fault of the disk.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.messages import fetch_request
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.record.builder import build_batch
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from tests.sim.clients import CODECS, RETRY_S, Producer, Recorder
from tests.sim.deletions import Remover
from tests.sim.history import Operation, Outcome, Send
from tests.sim.one_node import PROGRESS_S, Admin, OneNode
from tests.sim.progress import progress
from tests.sim.readers import FETCH_VERSION
from tests.sim.world import World

COMPACTED = "compacted"
KEYS = 5
TROUBLE_S = (8.0, 16.0)
# The interval and the number of looks for a cleaning before a topic is deleted.
LOOK_S, LOOKS = 0.01, 50
# A value that can be divided by this is a tombstone.
TOMBSTONES = 7
LONGEST_RETENTION_S = 2
# Longer than a tombstone is kept: its segment rolls, a cleaning gives it a horizon, and one behind that removes it.
OUTLIVED_S = LONGEST_RETENTION_S + 3


def key_of(number: int) -> bytes:
    """The key of a value."""
    return b"key-%d" % (number * 31 % KEYS)


class KeyWriter(Producer):
    """Writes rising numbers under a few keys, and remembers where each lies."""

    def __init__(self, world: World, values: Iterable[int]) -> None:
        super().__init__(
            world, "key-writer", 1, Recorder(), partitions=[(COMPACTED, 0)], idempotent=True, values=values
        )
        self.last: dict[bytes, int] = {}
        self.offsets: dict[int, int] = {}

    def _encode(self, values: list[int], sequence: int) -> bytes:
        records = []
        for value in values:
            key = key_of(value)
            self.last[key] = value
            text = None if value % TOMBSTONES == 0 else b"%d" % value
            headers = (("number", b"%d" % value),)
            records.append(Record(key, text, headers, self.clock.now_ms()))
        return build_batch(
            records,
            compression=self.random.choice(CODECS),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
        )

    def _finish(self, operation: Operation, error_code: int, base_offset: int) -> None:
        super()._finish(operation, error_code, base_offset)
        if operation.outcome is Outcome.OK and base_offset >= 0:
            for index, step in enumerate(operation.steps):
                assert isinstance(step, Send)
                self.offsets[step.value] = base_offset + index

    def deleted(self) -> dict[bytes, int]:
        """The keys whose last record is a tombstone, and its number."""
        return {key: number for key, number in self.last.items() if number % TOMBSTONES == 0}

    def leave_alone(self, keys: Collection[bytes]) -> None:
        """Write no more records under these keys, which are not all."""
        self._values = (number for number in self._values if key_of(number) not in keys)

    async def read(self) -> list[Record]:
        """Every record from the log's start to its end. Raises OdradekError."""
        found: list[Record] = []
        connection = await self.leader_of(COMPACTED, 0)
        offset = 0
        while True:
            asked = fetch_request.FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=100_000, current_leader_epoch=-1
            )
            topic = fetch_request.FetchTopic(topic=COMPACTED, partitions=[asked])
            request = fetch_request.FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
            )
            response = await self.request(connection, request, FetchResponse, FETCH_VERSION)
            answer = response.responses[0].partitions[0]
            if answer.error_code:
                raise ApiError(ErrorCode(answer.error_code))
            data = b"" if answer.records is None else bytes(answer.records)
            before = offset
            for position, header in read_batches(data):
                batch = data[position : position + header.size_bytes]
                if self.refuses(COMPACTED, batch, header):
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE)
                found += [record for record in read_records(batch, header) if record.offset >= offset]
                offset = header.last_offset + 1
            if offset == before:
                return found

    def check(self, records: list[Record]) -> None:
        """Check that each key reads as it was left, and that no record has another offset."""
        final: dict[bytes, Record] = {}
        highest = -1
        for record in records:
            assert record.key is not None
            number = int(record.headers[0][1] or b"")
            if record.offset <= highest:
                self.problem(f"offset {record.offset} follows {highest}")
            highest = record.offset
            if self.offsets.get(number, record.offset) != record.offset:
                self.problem(f"{number} was stored at {self.offsets[number]}, and is read at {record.offset}")
            final[record.key] = record
        for key, number in self.last.items():
            found = final.get(key)
            value = None if found is None else found.value
            if number % TOMBSTONES == 0:
                if value is not None:
                    self.problem(f"{key!r} was deleted, and reads as {value!r}")
            elif value != b"%d" % number:
                self.problem(f"{key!r} was left as {number}, and reads as {value!r}")


class CleaningsRemover(Remover):
    """Deletes topics while their logs are cleaned."""

    async def moment(self, name: str) -> None:
        for _ in range(LOOKS):
            if self._is_cleaned(name):
                break
            await asyncio.sleep(LOOK_S)
        await super().moment(name)

    def _is_cleaned(self, name: str) -> bool:
        brokers = [machine.broker for machine in self.world.machines.values()]
        return any((name, 0) in broker.cleaner.running for broker in brokers if broker is not None)


class CompactedNode(OneNode):
    """One run."""

    world_name = "compacted"

    def add_machines(self) -> None:
        settings = {"log.cleaner.backoff.ms": "200", "log.flush.offset.checkpoint.interval.ms": "500"}
        self.world.add_machine("node-1", 1, settings)

    async def run(self) -> None:
        """Everything from the first start to the last read; problems are in the recorder."""
        async with self.watched():
            await self._run()

    async def _run(self) -> None:
        world = self.world
        self.add_machines()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, self.recorder, copies=1)
        configs = {
            "cleanup.policy": "compact",
            "segment.ms": "300",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": self.random.choice(("0", str(LONGEST_RETENTION_S * 1000))),
            "file.delete.delay.ms": "100",
            "message.timestamp.after.max.ms": str(2**63 - 1),
        }
        short = {
            "cleanup.policy": "compact,delete",
            "min.cleanable.dirty.ratio": "0.01",
            "file.delete.delay.ms": "0",
        }
        if world.swarm.loses_power:
            configs["flush.messages"] = short["flush.messages"] = "1"
        await admin.create_surely(COMPACTED, 1, configs)
        writer = KeyWriter(world, itertools.count(1))
        remover = CleaningsRemover(world, "remover", 2, self.recorder, copies=1, settings=short, keyed=True)
        tasks = [world.loop.spawn(each.name, each.run(), name=each.name) for each in (writer, remover)]
        await world.make_trouble(self.random.uniform(*TROUBLE_S))
        world.heal()
        writer.stopping = remover.stopping = True
        async with progress(world.loop, PROGRESS_S, lambda: "a client or a last look waits", self.recorder.problems):
            for task in tasks:
                await task
            for _ in range(2):  # the second time after more cleanings in peace
                writer.check(await self._read_surely(writer))
                await asyncio.sleep(2)
            await self._outlive_tombstones(writer)
        self.recorder.problems += writer.recorder.problems + remover.left_over()
        self.recorder.history += writer.recorder.history
        for machine in world.machines.values():
            if machine.broker is not None:
                uncleanable = [reason for _, reason, _ in machine.broker.cleaner.uncleanable.values()]
                self.recorder.problems += [f"{machine.name} left a log alone: {reason}" for reason in uncleanable]

    async def _outlive_tombstones(self, writer: KeyWriter) -> None:
        """Write under other keys until the present tombstones must be gone, and check that they are."""
        deleted = writer.deleted()
        if len(deleted) == KEYS:
            deleted.popitem()
        if not deleted:
            return
        writer.leave_alone(deleted)
        writer.stopping = False
        writing = self.world.loop.spawn(writer.name, writer.run(), name=writer.name)
        await asyncio.sleep(OUTLIVED_S)
        writer.stopping = True
        await writing
        records = await self._read_surely(writer)
        writer.check(records)
        left = {each.offset: each.key for each in records if each.key in deleted}
        self.recorder.problems += [f"the tombstone of {key!r} is still at offset {at}" for at, key in left.items()]

    async def _read_surely(self, writer: KeyWriter) -> list[Record]:
        while True:
            try:
                return await writer.read()
            except OdradekError:
                await asyncio.sleep(RETRY_S)
