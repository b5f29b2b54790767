"""The world of two clusters: topics of one are mirrored by a link of the other, under the faults of both.

Transactional writers and an idempotent producer write at the source. Records are deleted there, partitions are added,
and the mirrors are paused and resumed. When the faults are over, each copy of a mirror has the very batches of the
source, from the same start to the same end, and a reader of the mirror has read what a reader of the source has read,
at the same offsets.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from odradek.client.admin import ConfigOperation, ResourceType
from odradek.client.cluster import check
from odradek.common.errors import OdradekError
from odradek.protocol.messages import create_partitions_request, delete_records_request
from odradek.protocol.messages import incremental_alter_configs_request as alter
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.record.batch import BatchHeader
from odradek.replica.partition import Partition
from odradek.settings.links import MirrorState, bootstrap_key, mirror_key
from tests.sim.chaos_clients import ChaosClient
from tests.sim.clients import RETRY_S, Producer, Recorder
from tests.sim.cluster_invariants import ClusterWatch, batches_on, different_logs, unconverged
from tests.sim.copiers import FollowingReader, Ledger, TransactionalWriter
from tests.sim.history import Rules, first, judge
from tests.sim.invariants import WATCH_EVERY_S
from tests.sim.one_node import PROGRESS_S, Admin
from tests.sim.polling import surely, until
from tests.sim.progress import progress
from tests.sim.runs import Scenario
from tests.sim.sites import Site
from tests.sim.transactional import SETTINGS
from tests.sim.world import PORT, World

LINK = "west"
# Written in transactions; and by a producer, with partitions that are added and records that are deleted.
PAID, TRIMMED = "paid", "trimmed"
PARTITIONS = 2
MOST_PARTITIONS = 4
TROUBLE_S = (8.0, 20.0)
LOOK_EVERY_S = 0.2
# How often a site is a single node, which is cheaper and has other failures.
ALONE = 0.5


class Operator(ChaosClient):
    """Adds partitions to a topic of the source, and deletes records of it."""

    def __init__(self, site: Site, process: int, recorder: Recorder) -> None:
        super().__init__(site, f"operator-of-{site.name}", process, recorder)
        self._partitions = PARTITIONS

    def pause_s(self) -> float:
        return self.random.uniform(0.1, 2.0)

    async def act(self) -> None:
        if self.random.random() < 0.2:
            await self._add_partition()
        else:
            await self._delete_records(self.random.randrange(PARTITIONS))

    async def _add_partition(self) -> None:
        if self._partitions == MOST_PARTITIONS:
            return
        count = self._partitions + 1
        topic = create_partitions_request.CreatePartitionsTopic(name=TRIMMED, count=count, assignments=None)
        request = create_partitions_request.CreatePartitionsRequest(topics=[topic], timeout_ms=2000)
        answer = (await self.cluster.request(request, CreatePartitionsResponse)).results[0]
        self._partitions += 1
        check(answer.error_code, TRIMMED, answer.error_message)
        self.world.count("partition added")

    async def _delete_records(self, number: int) -> None:
        # All up to the watermark, which Kafka writes as -1.
        wanted = delete_records_request.DeleteRecordsPartition(partition_index=number, offset=-1)
        topic = delete_records_request.DeleteRecordsTopic(name=TRIMMED, partitions=[wanted])
        request = delete_records_request.DeleteRecordsRequest(topics=[topic], timeout_ms=2000)
        response = await self.ask(await self.leader_of(TRIMMED, number), request, DeleteRecordsResponse)
        check(response.topics[0].partitions[0].error_code, TRIMMED)
        self.world.count("records deleted")

    async def finish(self) -> None:
        """Each request is whole by itself."""


class LinkAdmin(ChaosClient):
    """Makes the link and its mirrors at the destination, and pauses and resumes them."""

    def __init__(self, site: Site, source: Site, process: int, recorder: Recorder) -> None:
        super().__init__(site, f"link-admin-of-{site.name}", process, recorder)
        self._source = ",".join(f"{host}:{PORT}" for host in source.machines)

    def pause_s(self) -> float:
        return self.random.uniform(0.2, 3.0)

    async def begin(self) -> None:
        """Make the link and the mirrors, however often it takes."""
        states = {mirror_key(LINK, "mirror", topic): MirrorState.ACTIVE for topic in (PAID, TRIMMED)}
        await surely(lambda: self._set({bootstrap_key(LINK): self._source}))
        await surely(lambda: self._set(states))

    async def act(self) -> None:
        topic = self.random.choice((PAID, TRIMMED))
        state = self.random.choice((MirrorState.ACTIVE, MirrorState.PAUSED))
        await self._set({mirror_key(LINK, "mirror", topic): state})
        self.world.count(f"mirror {state}")

    async def finish(self) -> None:
        """Resume all."""
        await self.begin()

    async def _set(self, values: Mapping[str, str]) -> None:
        changes = [
            alter.AlterableConfig(name=name, config_operation=ConfigOperation.SET, value=value)
            for name, value in values.items()
        ]
        resource = alter.AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=changes)
        response = await self.cluster.request(
            alter.IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        check(response.responses[0].error_code, LINK, response.responses[0].error_message)


class LinksWatch:
    """Looks at both sites."""

    def __init__(self, source: Site, destination: Site, recorder: Recorder) -> None:
        there = Recorder()
        # What was acknowledged at the source is at the destination later: it is not looked for there.
        there.problems = recorder.problems
        self._watches = (ClusterWatch(source, recorder), ClusterWatch(destination, there))

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            for watch in self._watches:
                watch.look()


def replicas(site: Site, *, led: bool = False) -> Iterator[tuple[str, Partition]]:
    """(host, replica) of each topic that is mirrored; with `led`, those that lead."""
    for machine in site.machines.values():
        for partition in machine.broker.replicas if machine.running and machine.broker is not None else ():
            if partition.topic in (PAID, TRIMMED) and (partition.is_leader or not led):
                yield machine.name, partition


class LinkedClusters(Scenario):
    """One run."""

    world_name = "linked"
    salt = 0x117C
    settings: ClassVar[dict[str, str]] = {**SETTINGS}
    durable_settings: ClassVar[dict[str, str]] = {"log.flush.interval.messages": "1"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.source = Site(world, "there", settings={})
        self.destination = Site(world, "here", settings={})

    def make_watch(self) -> Any:
        return LinksWatch(self.source, self.destination, self.recorder)

    async def run(self) -> None:
        """Everything from the first start to the last read; problems are in the recorder."""
        for site in (self.source, self.destination):
            site.add_nodes(1 if self.random.random() < ALONE else 3)
        async with self.watched():
            await self._run()
        self._verdict()

    async def _run(self) -> None:
        world, ledger = self.world, Ledger()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(self.source, "admin", 0, self.recorder, copies=len(self.source.machines))
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        for topic in (PAID, TRIMMED):
            await admin.create_surely(topic, PARTITIONS, configs)
        linking = LinkAdmin(self.destination, self.source, 71, self.recorder)
        await linking.begin()
        readers = [self._reader(site, number, ledger) for number, site in ((9, self.source), (10, self.destination))]
        clients: list[Any] = [*self._writers(ledger), Operator(self.source, 72, self.recorder), linking, *readers]
        tasks = [world.loop.spawn(client.name, client.run(), name=client.name) for client in clients]
        await world.make_trouble(self.random.uniform(*TROUBLE_S))
        world.heal()
        for client in clients:
            client.stopping = True

        def who_waits() -> str:
            waiting = [client.name for client, task in zip(clients, tasks, strict=True) if not task.done()]
            return f"waiting: {waiting + self._unfinished()}"

        async with progress(world.loop, PROGRESS_S, who_waits, self.recorder.problems):
            await asyncio.gather(*tasks)
            await until(lambda: not self._unfinished(), pause_s=LOOK_EVERY_S)
            for reader in readers:
                await self._drain(reader)
        for client in clients:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    def _writers(self, ledger: Ledger) -> list[Any]:
        values = itertools.count(1)
        writers: list[Any] = [
            TransactionalWriter(
                self.source,
                name,
                number,
                self.recorder,
                topic=PAID,
                partitions=PARTITIONS,
                transactional_id=name,
                version=version,
                fights=len(self.source.machines) > 1,
                values=values,
                ledger=ledger,
            )
            for number, (name, version) in enumerate((("new", 2), ("old", 0)), 1)
        ]
        # What is read of this topic is not judged, as it is deleted.
        trimmed = [(TRIMMED, number) for number in range(PARTITIONS)]
        return [
            *writers,
            Producer(
                self.source,
                "trimmed-writer",
                3,
                Recorder(),
                partitions=trimmed,
                idempotent=True,
                values=values,
                acks=(-1,),
            ),
        ]

    def _reader(self, site: Site, process: int, ledger: Ledger) -> FollowingReader:
        name = f"reader-of-{site.name}"
        return FollowingReader(site, name, process, self.recorder, topic=PAID, partitions=PARTITIONS, ledger=ledger)

    async def _drain(self, reader: FollowingReader) -> None:
        while True:
            try:
                ends = await reader.end_offsets()
                while any(reader.positions[key] < end for key, end in ends.items()):
                    await reader.poll(max_wait_ms=100)
                return
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    def _unfinished(self) -> list[str]:
        """What differs still: each site in itself, and the mirrors from their source."""
        waiting = unconverged(self.source) + unconverged(self.destination)
        if waiting:
            return waiting
        there = {each.name: each.log for _, each in replicas(self.source, led=True)}
        here = {each.name: each.log for _, each in replicas(self.destination, led=True)}
        for name, log in there.items():
            marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
            if len(set(marks[1:])) > 1:
                waiting.append(f"{name} has an open transaction, or is not committed: {marks}")
            found = None
            if (mirror := here.get(name)) is not None:
                found = (mirror.log_start_offset, mirror.last_stable_offset, mirror.high_watermark)
            # A leader that crashed may not know any more what was deleted, of which its mirror has heard.
            if found is None or found[0] < marks[0] or found[1:] != marks[1:3]:
                waiting.append(f"{name} starts, is stable and ends at {marks[:3]}, its mirror at {found}")
        return waiting

    def _verdict(self) -> None:
        rules = Rules(idempotent=True, read_committed=True, assigned=True, drained=True, one_coordinator=False)
        if findings := judge(self.recorder.history, rules):
            self.recorder.problems.append(first(findings))
        for site in (self.source, self.destination):
            self.recorder.problems += different_logs(site)
        self.recorder.problems += self._different_mirrors()

    def _different_mirrors(self) -> list[str]:
        """Where a copy of a mirror has other batches than the source's leader has."""
        logs = {name: batches_on(machine) for name, machine in self.world.machines.items()}
        leaders = {each.name: (host, each) for host, each in replicas(self.source, led=True)}
        problems = []
        for host, mirror in replicas(self.destination):
            leader, partition = leaders[mirror.name]
            ours = logs[host].get(mirror.name, {})
            start = max(partition.log.log_start_offset, mirror.log.log_start_offset, _skipped_to(ours))
            theirs, ours = (
                {offset: batch for offset, batch in batches.items() if offset >= start}
                for batches in (logs[leader].get(mirror.name, {}), ours)
            )
            if theirs != ours:
                where = min(offset for offset in theirs.keys() | ours.keys() if theirs.get(offset) != ours.get(offset))
                problems.append(f"{mirror.name}: {host} has another batch than {leader} at offset {where}")
        return problems


def _skipped_to(batches: dict[int, bytes]) -> int:
    """Where a mirror goes on behind what its source had deleted, though its source may have it again since a crash."""
    empty = [offset for offset, batch in batches.items() if not BatchHeader.read(batch).record_count]
    return max(empty, default=-1) + 1
