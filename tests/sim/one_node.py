"""The world of one node: a broker, producers, readers and a committer, under the faults of a seed, and the verdict."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar

from odradek.client.admin import ConfigOperation, ResourceType, describe_configs
from odradek.client.cluster import check
from odradek.common.errors import OdradekError
from odradek.protocol.messages import create_topics_request, incremental_alter_configs_request
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.sim.clients import RETRY_S, Client, Producer, Recorder
from tests.sim.history import Rules, find_anomalies, first
from tests.sim.inspector import Inspector
from tests.sim.invariants import check_disk
from tests.sim.members import TIMEOUTS_MS, Member, finish
from tests.sim.progress import progress
from tests.sim.readers import Committer, Reader
from tests.sim.runs import Scenario
from tests.sim.world import World

TOPIC = "kept"
# A topic that is written without any sync if machines lose power: it may lose records, and the rest must be valid.
LOOSE = "loose"
PARTITIONS = 2
TROUBLE_S = (8.0, 25.0)
# After the faults end, everything must be answered and read within this time.
PROGRESS_S = 90.0
# A long poll that waits so long must end so soon after a record is there, where nothing is wrong any more.
WAKE_UP_WAIT_MS = 2000
WAKE_UP_LIMIT_S = 0.5
WAKE_UP_TRIES = 5
# The number of members of each group; the first of each dies for good when the faults end.
GROUPS = {"pair": 2, "trio": 3}
STATIC_MEMBERS = 0.4
NEVER_FLUSHED = str(2**63 - 1)
# A setting of the checked topic that does nothing to its records: clocks do not go so far back.
CHANGED_SETTING = "message.timestamp.before.max.ms"
# A broker may be behind the one that answered the change.
CATCH_UP_S = 20.0

T = TypeVar("T")


class Admin(Client):
    """Creates topics and changes a setting, and remembers which changes were acknowledged.

    Attributes:
        created: topics.
        setting: the value of `CHANGED_SETTING` that was acknowledged last; None before the first.
        unanswered: values without a response; each may be set, or be set later.
    """

    def __init__(self, world: World, name: str, process: int, recorder: Recorder, *, copies: int = 1) -> None:
        """`copies` is the replication factor of what it creates."""
        super().__init__(world, name, process, recorder)
        self._copies = copies
        self.created: list[str] = []
        self.setting: str | None = None
        self.unanswered: list[str] = []
        self.stopping = False

    async def create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        """Create a topic. Raises OdradekError; TOPIC_ALREADY_EXISTS counts as done."""
        settings = [create_topics_request.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = create_topics_request.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=self._copies, configs=settings
        )
        request = create_topics_request.CreateTopicsRequest(topics=[topic], timeout_ms=2000)
        response = await self.cluster.request(request, CreateTopicsResponse)
        code = response.topics[0].error_code
        if code != 36:  # TOPIC_ALREADY_EXISTS: an attempt before was carried out, and its answer lost
            check(code, name, response.topics[0].error_message)
        self.created.append(name)

    async def create_surely(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        """Create a topic, however often it takes."""
        while name not in self.created:
            try:
                await self.create(name, partitions, configs)
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        """Create a topic now and then, and change a setting of the first."""
        for number in itertools.count():
            if self.stopping:
                return
            try:
                if self.random.random() < 0.5:
                    await self.create(f"more-{number}", 1, {})
                else:
                    await self.change_setting(str((1_000_000 + number) * 1_000_000))
            except OdradekError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self.random.uniform(0.1, 3.0))

    async def change_setting(self, value: str) -> None:
        """Give the checked topic's setting another value, asking once. Raises OdradekError."""
        change = incremental_alter_configs_request.AlterableConfig(
            name=CHANGED_SETTING, config_operation=ConfigOperation.SET, value=value
        )
        resource = incremental_alter_configs_request.AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=TOPIC, configs=[change]
        )
        request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(resources=[resource])
        self.unanswered.append(value)
        response = await self.cluster.request(request, IncrementalAlterConfigsResponse)
        check(response.responses[0].error_code, TOPIC)
        self.unanswered.remove(value)
        self.setting = value

    async def verify(self) -> None:
        """Check that all acknowledged topics and settings are there. Raises OdradekError."""
        known = {topic.name for topic in (await self.cluster.metadata()).topics}
        for name in self.created:
            if name not in known:
                self.problem(f"topic {name} was created and is gone")
        if self.setting is not None:
            await self._verify_setting(self.setting)

    async def _verify_setting(self, acknowledged: str) -> None:
        until = self.world.loop.time() + CATCH_UP_S
        while (value := await self._acknowledged_setting()) not in (acknowledged, *self.unanswered):
            if self.world.loop.time() > until:
                self.problem(f"{CHANGED_SETTING} of {TOPIC} was set to {acknowledged} and is {value}")
                return
            await asyncio.sleep(RETRY_S)

    async def _acknowledged_setting(self) -> str | None:
        (described,) = await describe_configs(self.cluster, ResourceType.TOPIC, [TOPIC])
        return next((each.value for each in described.configs if each.name == CHANGED_SETTING), None)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until it succeeds, and return its result: leaders change, and descriptors are short, after the
    faults, too."""
    while True:
        try:
            return await ask()
        except OdradekError:
            await asyncio.sleep(RETRY_S)


class OneNode(Scenario):
    """One run. Worlds of more nodes build on it: see `cluster`."""

    world_name = "node"
    copies = 1
    acks: tuple[int, ...] = (1, -1)
    # Commits of groups are checked too, so the offsets topic must be as durable as the checked one.
    durable_settings: ClassVar[dict[str, str]] = {"log.flush.interval.messages": "1"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.idempotent = self.random.random() < 0.7

    async def run(self) -> None:
        """Everything from the first start to the last read; problems are in the recorder."""
        async with self.watched():
            await self._run()
        self._verdict()

    async def _run(self) -> None:
        world = self.world
        self.add_machines()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, self.recorder, copies=self.copies)
        await self.before_topics(admin)
        # Clocks jump by days here, and a record from the future would be refused, rightly.
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        if world.swarm.loses_power:
            configs["flush.messages"] = "1"
        await admin.create_surely(TOPIC, PARTITIONS, configs)
        partitions = [(TOPIC, number) for number in range(PARTITIONS)]
        values = itertools.count(1)
        writers = [
            Producer(
                world,
                f"writer-{number}",
                number,
                self.recorder,
                partitions=partitions,
                idempotent=self.idempotent,
                values=values,
                acks=self.acks,
            )
            for number in (1, 2)
        ]
        readers = [
            Reader(world, f"reader-{number}", number, self.recorder, partitions=partitions, sessions=number == 4)
            for number in (3, 4)
        ]
        committer = Committer(world, "committer", 5, self.recorder, readers[0])
        clients: list[Producer | Reader | Admin | Committer] = [*writers, *readers, admin, committer]
        if world.swarm.loses_power and self.copies == 1:
            clients.append(await self._loose_writer(admin))
        clients += self.more_clients()
        members = self._members()
        tasks = [world.loop.spawn(client.name, client.run(), name=client.name) for client in clients]
        belonging = {member: world.loop.spawn(member.name, member.run(), name=member.name) for member in members}
        await world.make_trouble(self.random.uniform(*TROUBLE_S))
        world.heal()
        for client in clients:
            client.stopping = True
        living = [member for member in members if not self._dies(member)]
        inspector = Inspector(world, "inspector", 70, self.recorder)
        named = [*zip(clients, tasks, strict=True), *((member, belonging[member]) for member in living)]
        async with progress(
            world.loop, PROGRESS_S, lambda: self._who_waits(named, inspector.differs), self.recorder.problems
        ):
            await asyncio.gather(*tasks)
            auditor = await self._read_everything(readers, admin)
            await finish(world, living, await patiently(auditor.end_offsets))
            await asyncio.gather(*(belonging[member] for member in living))
            await inspector.see_groups_empty(list(GROUPS))
            await self._check_wake_up(auditor, writers[0])
            await self.converge()
        for client in [*clients, *members]:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    def _who_waits(self, named: Sequence[tuple[Any, asyncio.Task[None]]], differs: list[str]) -> str:
        """A line with the clients and members that have not ended, and other reasons to wait."""
        waiting = [who.name for who, task in named if not task.done()] + self.unfinished() + differs
        return f"waiting: {waiting}"

    def add_machines(self) -> None:
        """Put the nodes into the world; they are not started here."""
        self.world.add_machine("node-1", 1)

    async def before_topics(self, admin: Admin) -> None:
        """Return when the nodes are as this world wants them before it has topics."""

    def more_clients(self) -> Sequence[Any]:
        """Clients of a world of its own, with `name`, `network`, `run` and `stopping` as the others."""
        return ()

    async def converge(self) -> None:
        """Return once all nodes agree; one node does."""

    def unfinished(self) -> list[str]:
        """The conditions that `converge` still waits for."""
        return []

    def check_logs(self) -> list[str]:
        """Violations in the logs on the disks when everything is over."""
        return [problem for machine in self.world.machines.values() for problem in check_disk(machine)]

    def _members(self) -> list[Member]:
        members: list[Member] = []
        for group, count in GROUPS.items():
            timeouts_ms = self.random.choice(TIMEOUTS_MS)
            for number in range(count):
                name = f"{group}-{number + 1}"
                instance_id = f"seat-{number + 1}" if self.random.random() < STATIC_MEMBERS else None
                members.append(
                    Member(
                        self.world,
                        name,
                        20 + len(members),
                        self.recorder,
                        group=group,
                        partitions={TOPIC: PARTITIONS},
                        instance_id=instance_id,
                        timeouts_ms=timeouts_ms,
                    )
                )
        return members

    def _dies(self, member: Member) -> bool:
        """Let the first member of each group die without LeaveGroup, so that the others must get what it had."""
        if member.name not in [f"{group}-1" for group in GROUPS]:
            return False
        member.die()
        return True

    async def _loose_writer(self, admin: Admin) -> Producer:
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1), "flush.messages": NEVER_FLUSHED}
        await admin.create_surely(LOOSE, 1, configs)
        return Producer(
            self.world,
            "loose-writer",
            6,
            Recorder(),
            partitions=[(LOOSE, 0)],
            idempotent=False,
            values=itertools.count(1),
        )

    async def _read_everything(self, readers: list[Reader], admin: Admin) -> Reader:
        fresh = Reader(self.world, "auditor", 9, self.recorder, partitions=list(readers[0].positions), sessions=False)
        for reader in [*readers, fresh]:
            while True:
                try:
                    await reader.drain()
                    break
                except OdradekError:
                    await asyncio.sleep(RETRY_S)
                except RuntimeError as error:
                    self.recorder.problems.append(str(error))
                    break
        await patiently(admin.verify)
        return fresh

    async def _check_wake_up(self, reader: Reader, writer: Producer) -> None:
        """A long poll at the end of everything is answered as soon as a record comes."""
        loop = self.world.loop
        topic, partition = first_of_all = next(iter(reader.positions))
        offset = reader.positions[first_of_all]
        # Alone with one partition, so that a poll waits where the record comes.
        reader = Reader(self.world, "sleeper", 10, self.recorder, partitions=[first_of_all], sessions=False)
        reader.positions[first_of_all] = offset
        for _ in range(WAKE_UP_TRIES):
            try:
                # Its connections are there before the one that is measured: a client that begins at a starting node and
                # takes connections before it serves any, waits for that node and not for the record.
                await reader.poll(max_wait_ms=0)
            except OdradekError:
                await asyncio.sleep(RETRY_S)
                continue
            poll = asyncio.ensure_future(reader.poll(max_wait_ms=WAKE_UP_WAIT_MS))
            try:
                await asyncio.sleep(WAKE_UP_WAIT_MS / 10_000)
                parked = not poll.done()
                parked = await writer.send_once(topic, partition, writer.batch()) and parked
                acknowledged_s = loop.time()
                await poll
                late_s = loop.time() - acknowledged_s
                if parked and late_s > WAKE_UP_LIMIT_S:
                    self.recorder.problems.append(f"a long poll was answered {late_s:.3f} s after its record")
                await reader.drain()
                if parked:
                    return
            except RuntimeError as error:
                self.recorder.problems.append(str(error))
                return
            except OdradekError:
                await asyncio.gather(poll, return_exceptions=True)
                await asyncio.sleep(RETRY_S)

    def _verdict(self) -> None:
        rules = Rules(
            idempotent=self.idempotent,
            read_committed=True,
            assigned=True,
            drained=True,
            one_coordinator=self.copies == 1,
        )
        findings = find_anomalies(self.recorder.history, rules)
        if findings:
            self.recorder.problems.append(first(findings))
        self.recorder.problems += self.check_logs()
