"""The world of a cluster with quotas: they are set and removed, and throttle writers, while its nodes fail.

Changers set and remove quotas of client ids of their own, as `permissions` does with ACLs: an acknowledged quota is in
force at once on the node that answered, and in the end on every node, in its description and in its limits. Writers
send more than their quota allows: a connection that must wait is answered no sooner. From the beginning a quota for all
users allows consumers next to nothing; the replicas of the topic are still in sync in the end.

When everything is healed, every broker throttles a connection by a quota that is newer than the connection, for as long
as the response announces and not longer, and no more when the quota is gone. Then replication is throttled on each of
its sides (`replication_quotas`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar

from odradek.client.connection import Connection, RequestTimeoutError
from odradek.common.errors import ErrorCode, OdradekError
from odradek.protocol.messages import alter_client_quotas_request as alter
from odradek.protocol.messages import describe_client_quotas_request as describe
from odradek.protocol.messages import produce_request as produce
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.clients import PRODUCE_VERSION, RETRY_S, TIMEOUT_MS, Client, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.one_node import PARTITIONS, PROGRESS_S, TOPIC, TROUBLE_S, Admin
from tests.sim.permissions import OFTEN_BEHIND, SMALL_METADATA_LOG
from tests.sim.progress import progress
from tests.sim.replication_quotas import SIDES, ReplicationQuotas
from tests.sim.world import Machine, World

CHANGERS, WRITERS, ENTRIES = 2, 2, 3
RESTS_S = (0.0, 0.05, 0.2, 0.6)
PRODUCE_RATE, CONSUME_RATE = "producer_byte_rate", "consumer_byte_rate"
# The quotas of each writer, and of all consumers, in bytes per second.
WRITERS_RATE, CONSUMERS_RATE = 3000.0, 1.0
RECORD_BYTES = (10, 500, 2000, 4000)
# A quota that a probe exceeds at once, even with a full bucket, and one that it does not.
PROBED_RATE, PROBE_BYTES, NO_LIMIT = 1000.0, 15_000, 1e9
# A raised quota may have nothing saved up.
MOMENT_MS = 50
# The longest time that a healed network adds to a wait.
SLACK_S = 1.0
# A record of this size is copied in time by followers that no quota keeps back.
COPIED_BYTES, COPIED_WITHIN_S = 20_000, 10.0
NAMED, DEFAULT = 0, 1
Entity = tuple[str, str | None]


async def set_quota(client: Client, connection: Connection, entity: Entity, key: str, value: float | None) -> None:
    """Set or remove one quota. Raises OdradekError."""
    change = alter.OpData(key=key, value=value or 0.0, remove=value is None)
    kind, name = entity
    entry = alter.EntryData(entity=[alter.EntityData(entity_type=kind, entity_name=name)], ops=[change])
    answer = await client.request(
        connection, alter.AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse
    )
    check(answer.entries[0].error_code)


async def quota_of(client: Client, connection: Connection, entity: Entity, key: str) -> float | None:
    """The quota of an entity, as a node describes it; None if it has none. Raises OdradekError."""
    kind, name = entity
    component = describe.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else NAMED, match=name)
    request = describe.DescribeClientQuotasRequest(components=[component], strict=True)
    answer = await client.request(connection, request, DescribeClientQuotasResponse)
    check(answer.error_code)
    found = {each.key: each.value for entry in answer.entries or [] for each in entry.values}
    return found.get(key)


def check(code: int) -> None:
    """
    Raises:
        OdradekError: it was refused, or its outcome is not known.
    """
    if code:
        raise OdradekError(ErrorCode(code).name)


class Changer(Client):
    """Sets and removes quotas of its own client ids, and remembers what it was answered."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False
        # The last acknowledged quota of each name; the others have an unknown one.
        self.quotas: dict[str, float | None] = {}
        self.changes = 0
        self._made = 0

    async def run(self) -> None:
        """Change one after the other until `stopping`."""
        while not self.stopping:
            while len(self.quotas) < ENTRIES:
                self._made += 1
                self.quotas[f"{self.name}-{self._made}"] = None
            name = self.random.choice(list(self.quotas))
            remove = self.quotas[name] is not None and self.random.random() < 0.5
            await self._change(name, None if remove else float(self.random.randrange(1, 10**6)))
            await asyncio.sleep(self.random.choice(RESTS_S))

    async def _change(self, name: str, value: float | None) -> None:
        """Ask once; where no answer comes, forget the entry."""
        was_sent, entity = False, ("client-id", name)
        try:
            connection = await self.cluster.any_connection()
            was_sent = True
            await set_quota(self, connection, entity, PRODUCE_RATE, value)
            self.quotas[name] = value
            self.changes += 1
            seen = await quota_of(self, connection, entity, PRODUCE_RATE)
            if seen != value:
                at = self.network.process_at(connection)
                self.problem(f"{at} answered that the quota of {name} is {value}, and says now that it is {seen}")
        except OdradekError:
            if was_sent and self.quotas[name] != value:
                del self.quotas[name]
            await asyncio.sleep(RETRY_S)


class Writer(Client):
    """Sends what its quota does not let pass, and looks whether the connection waits."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False
        self.throttled = 0
        # When each connection may answer again.
        self._waits: dict[Connection, float] = {}

    async def run(self) -> None:
        """Write until `stopping`."""
        while not self.stopping:
            try:
                partition = self.random.randrange(PARTITIONS)
                connection = await self.leader_of(TOPIC, partition)
                await self.write(connection, partition, self.random.choice(RECORD_BYTES))
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def write(
        self, connection: Connection, partition: int, size_bytes: int, *, acks: int = -1, timeout_s: float = 0.0
    ) -> Any:
        """Send one record; returns the answer. Raises OdradekError."""
        loop = self.world.loop
        records = build_batch([Record(None, self.random.randbytes(size_bytes), timestamp_ms=self.clock.now_ms())])
        data = produce.PartitionProduceData(index=partition, records=records)
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[data])
        request = produce.ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        sent_s = loop.time()
        answer = await connection.request(
            request, ProduceResponse, timeout_s=timeout_s or TIMEOUT_MS / 1000, version=PRODUCE_VERSION
        )
        too_early_s = self._waits.get(connection, 0.0) - loop.time()
        if too_early_s > 0:
            self.problem(f"{self.network.process_at(connection)} answered {too_early_s:.3f} s before the wait was over")
        if answer.throttle_time_ms:
            self.throttled += 1
            self._waits[connection] = sent_s + answer.throttle_time_ms / 1000
        return answer


class ThrottledCluster(ManyNodes):
    """One run."""

    world_name = "quotas"
    salt = 0x90A7
    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        if self.random.random() < OFTEN_BEHIND:
            world.settings = {**SMALL_METADATA_LOG, **world.settings}
        self._changers: list[Changer] = []
        self._writers: list[Writer] = []

    @property
    def operations(self) -> int:
        return sum(each.changes for each in self._changers) + sum(each.throttled for each in self._writers)

    async def _run(self) -> None:
        world = self.world
        self.add_machines()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, self.recorder, copies=self.copies)
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1), "flush.messages": "1"}
        await self._set_surely(admin, ("client-id", None), PRODUCE_RATE, WRITERS_RATE)
        await self._set_surely(admin, ("user", None), CONSUME_RATE, CONSUMERS_RATE)
        await admin.create_surely(TOPIC, PARTITIONS, configs)
        self._changers = [
            Changer(world, f"changer-{number}", number, self.recorder) for number in range(1, CHANGERS + 1)
        ]
        self._writers = [
            Writer(world, f"writer-{number}", 10 + number, self.recorder) for number in range(1, WRITERS + 1)
        ]
        clients: list[Changer | Writer] = [*self._changers, *self._writers]
        tasks = [world.loop.spawn(each.name, each.run(), name=each.name) for each in clients]
        await world.make_trouble(self.random.uniform(*TROUBLE_S))
        world.heal()
        for each in clients:
            each.stopping = True
        auditor = Writer(world, "auditor", 30, self.recorder)

        def who_waits() -> str:
            waiting = [each.name for each, task in zip(clients, tasks, strict=True) if not task.done()]
            return f"waiting: {waiting + self.unfinished()}"

        async with progress(world.loop, PROGRESS_S, who_waits, self.recorder.problems):
            await asyncio.gather(*tasks)
            await self.converge()
            await self._set_surely(auditor, ("client-id", auditor.name), PRODUCE_RATE, NO_LIMIT)
            for machine in world.machines.values():
                if machine.is_broker:
                    await self._check_quotas(machine, auditor)
                    await self._probe(machine, auditor)
            await self._copy(auditor)
            await self.converge()
            await self._throttle_replication(auditor)
            await self.converge()
        for client in [*clients, admin, auditor]:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    async def _set_surely(self, client: Client, entity: Entity, key: str, value: float) -> None:
        while True:
            try:
                await set_quota(client, await client.cluster.any_connection(), entity, key, value)
                return
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def _check_quotas(self, machine: Machine, auditor: Client) -> None:
        """Check that a node describes, and enforces, the last acknowledged quotas."""
        broker = machine.broker
        assert broker is not None
        now_ms = broker.services.clock.monotonic_ms()
        for changer in self._changers:
            for name, value in changer.quotas.items():
                account = broker.dispatcher.quotas.produce.account("ANONYMOUS", name, now_ms)
                limit, right = None if account is None else account.limit, WRITERS_RATE if value is None else value
                if limit != right:
                    self.recorder.problems.append(f"{machine.name} limits {name} by {limit}, and should by {right}")
                connection = await self._connection(auditor, machine)
                said = await quota_of(auditor, connection, ("client-id", name), PRODUCE_RATE)
                if said != value:
                    text = f"{machine.name} says that the quota of {name} is {said}, and answered that it is {value}"
                    self.recorder.problems.append(text)

    async def _probe(self, machine: Machine, operator: Client) -> None:
        """Check that a new quota throttles a connection for as long as announced, and not after it is removed."""
        probe = Writer(self.world, f"probe-{machine.node_id}", 40 + machine.node_id, self.recorder)
        connection = await self._connection(probe, machine)
        changes = await self._connection(operator, machine)
        entity = ("client-id", probe.name)
        await set_quota(operator, changes, entity, PRODUCE_RATE, NO_LIMIT)
        if (await probe.write(connection, 0, PROBE_BYTES, acks=1)).throttle_time_ms > MOMENT_MS:
            probe.problem(f"{machine.name} keeps a connection back that has all it wants")
        await set_quota(operator, changes, entity, PRODUCE_RATE, PROBED_RATE)
        wait_s = (await probe.write(connection, 0, PROBE_BYTES, acks=1)).throttle_time_ms / 1000
        if wait_s * 1000 <= MOMENT_MS:
            probe.problem(f"{machine.name} does not keep a connection back that exceeds its quota")
        await set_quota(operator, changes, entity, PRODUCE_RATE, NO_LIMIT)
        try:
            answer = await probe.write(connection, 0, 1, acks=1, timeout_s=wait_s + SLACK_S)
        except RequestTimeoutError:
            probe.problem(f"{machine.name} kept a connection back for more than the {wait_s:.3f} s that it announced")
            return
        if answer.throttle_time_ms > MOMENT_MS:
            probe.problem(f"{machine.name} keeps a connection back by a quota that is gone")

    async def _connection(self, client: Client, machine: Machine) -> Connection:
        """A connection to one node; a new one if the last has ended."""
        while True:
            try:
                await client.cluster.metadata()
                return await client.cluster.connection_to(machine.node_id)
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def _copy(self, auditor: Writer) -> None:
        """Followers are not kept back by what consumers may have."""
        for partition in range(PARTITIONS):
            await self._write_surely(auditor, partition, COPIED_BYTES)

    async def _throttle_replication(self, auditor: Writer) -> None:
        quotas = ReplicationQuotas(self.world, auditor, TOPIC, partial(self._write_surely, auditor, 0))
        for side in SIDES:
            await quotas.check(side)

    async def _write_surely(self, auditor: Writer, partition: int, size_bytes: int) -> None:
        """Write one record, however often it takes; all replicas in sync have it soon."""
        began_s = self.world.loop.time()
        while True:
            try:
                connection = await auditor.leader_of(TOPIC, partition)
                answer = await auditor.write(connection, partition, size_bytes)
                check(answer.responses[0].partition_responses[0].error_code)
                break
            except OdradekError:
                await asyncio.sleep(RETRY_S)
        if self.world.loop.time() - began_s > COPIED_WITHIN_S:
            auditor.problem(f"{TOPIC}-{partition} is copied slowly where nothing is in the way")

    def _verdict(self) -> None:
        self.recorder.problems += self.check_logs()
