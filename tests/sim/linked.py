"""The world of two clusters: topics of one are mirrored by a link of the other, under the faults of both.

Transactional writers and an idempotent producer write at the source. Records are deleted there, partitions are added,
and the mirrors are paused and resumed. When the faults are over, each copy of a mirror has the very batches of the
source, from the same start to the same end, and a reader of the mirror has read what a reader of the source has read,
at the same offsets.

Mirrors are promoted at moments that a seed draws (`promotions.py`). Then a copy has the source's batches up to where
the mirror ended, and this cluster's behind; writers, under the same transactional ids, and a group move over. Some of
these topics are failed back: the source's becomes the mirror, at a moment that is drawn as well (`failbacks.py`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from odradek.client.admin import ConfigOperation, ResourceType
from odradek.client.cluster import check
from odradek.client.groups import committed_offsets
from odradek.common.errors import OdradekError
from odradek.log.log import Log
from odradek.protocol.messages import create_partitions_request, delete_records_request
from odradek.protocol.messages import incremental_alter_configs_request as alter
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.record.batch import BatchHeader
from odradek.replica.partition import Partition
from odradek.settings.link_settings import GROUP_FILTERS, OFFSETS
from odradek.settings.links import MirrorState, bootstrap_key, mirror_key, setting_key
from tests.sim.chaos_clients import ChaosClient
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.cluster_invariants import ClusterWatch, batches_on, different_logs, unconverged
from tests.sim.copiers import FollowingReader, Ledger
from tests.sim.failbacks import (
    CutWatch,
    Failback,
    FailingBack,
    LeavingProducer,
    LeavingWriter,
    jumped_over,
    lost_in_silence,
    not_alike,
    other_batches,
    read_by,
)
from tests.sim.history import Rules, find_anomalies, first
from tests.sim.invariants import WATCH_EVERY_S
from tests.sim.one_node import PROGRESS_S, Admin
from tests.sim.polling import surely, until
from tests.sim.progress import progress
from tests.sim.promotions import (
    GroupMember,
    MirrorReader,
    Promoter,
    Promotion,
    SideRecorder,
    begin_when_asked,
    first_own_epochs,
    gone,
    history_here,
    parts,
    without_deleted,
    written_before,
    wrong_end,
)
from tests.sim.readers import Committer, Reader
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
# The probability that a site is a single node, which is cheaper and has other failures.
ALONE = 0.5
# The probabilities that a topic is promoted, and that its writers move to the destination too early.
PROMOTED, EARLY = 0.6, 0.3
# The probabilities that a promoted topic is failed back, and that this is given up.
FAILED_BACK, GIVEN_UP = 0.6, 0.25
# The seconds for which writers go on at the destination after the last promotion.
MOVED_S = 2.0
# The process numbers of the last readers, of committed records and of all records.
COMMITTED_AUDITOR, AUDITOR = 95, 96
FILTERS = '{"groupFilters": [{"name": "group-of-committer", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'


class Operator(ChaosClient):
    """Adds partitions to a topic of a site, and deletes records of it.

    Attributes: `deleted`: how many requests to delete records were sent.
    """

    def __init__(self, site: Site, process: int, recorder: Recorder) -> None:
        super().__init__(site, f"operator-of-{site.name}", process, recorder)
        self._partitions = PARTITIONS
        self.deleted = 0

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
        self.deleted += 1
        response = await self.request(await self.leader_of(TRIMMED, number), request, DeleteRecordsResponse)
        check(response.topics[0].partitions[0].error_code, TRIMMED)
        self.world.count("records deleted")

    async def finish(self) -> None:
        """Do nothing: each request is complete by itself."""


class LinkAdmin(ChaosClient):
    """Makes the link and its mirrors at the destination, and pauses and resumes them until they are promoted."""

    def __init__(
        self, site: Site, source: Site, process: int, recorder: Recorder, promotions: Mapping[str, Promotion]
    ) -> None:
        super().__init__(site, f"link-admin-of-{site.name}", process, recorder)
        self._promotions = promotions
        self._source = ",".join(f"{host}:{PORT}" for host in source.machines)

    def pause_s(self) -> float:
        return self.random.uniform(0.2, 3.0)

    async def begin(self) -> None:
        """Make the link and the mirrors, however often it takes."""
        offsets = {OFFSETS.enable: "true", OFFSETS.interval: "1000", GROUP_FILTERS: FILTERS}
        settings = {setting_key(LINK, name): value for name, value in offsets.items()}
        await surely(lambda: self._set({bootstrap_key(LINK): self._source, **settings}))
        await self._resume(PAID, TRIMMED)

    async def _resume(self, *topics: str) -> None:
        if topics:
            states = {mirror_key(LINK, "mirror", topic): MirrorState.ACTIVE for topic in topics}
            await surely(lambda: self._set(states))

    def _kept(self) -> list[str]:
        """The topics whose promotion was not asked for."""
        return [
            topic for topic in (PAID, TRIMMED) if topic not in self._promotions or not self._promotions[topic].asked
        ]

    async def act(self) -> None:
        if not self._kept():
            return
        topic = self.random.choice(self._kept())
        state = self.random.choice((MirrorState.ACTIVE, MirrorState.PAUSED))
        await self._set({mirror_key(LINK, "mirror", topic): state})
        self.world.count(f"mirror {state}")

    async def finish(self) -> None:
        """Resume all, but for those that a seed promotes: one of these may stay paused until then."""
        await self._resume(*[topic for topic in (PAID, TRIMMED) if topic not in self._promotions])

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

    def __init__(self, source: ClusterWatch, destination: ClusterWatch) -> None:
        self._watches = (source, destination)

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            for watch in self._watches:
                watch.check()


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
        # Clocks jump by days, and records of a promoted topic may have timestamps of the future.
        self.destination = Site(world, "here", settings={"log.message.timestamp.after.max.ms": str(2**63 - 1)})
        # The histories of the destination: of readers of committed records, and of a reader of all records.
        self.here, self.all_here = SideRecorder(self.recorder), SideRecorder(self.recorder)
        # The history of an old source whose failback was given up.
        self.given_up = SideRecorder(self.recorder)
        self.trouble_s = self.random.uniform(*TROUBLE_S)
        self.promotions = {
            topic: Promotion(topic, self.random.uniform(0.0, 1.1 * self.trouble_s))
            for topic in (PAID, TRIMMED)
            if self.random.random() < PROMOTED
        }
        self.failbacks = {
            topic: Failback(
                promotion,
                self.random.uniform(0.0, 0.6 * self.trouble_s),
                3.0 * self.random.random() ** 3 if self.random.random() < GIVEN_UP else None,
            )
            for topic, promotion in self.promotions.items()
            if self.random.random() < FAILED_BACK
        }
        self.member: GroupMember | None = None
        self.operator_here: Operator | None = None
        self.old_writers: list[LeavingWriter] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def failed_back(self) -> list[Failback]:
        """The failbacks that were not given up."""
        return [each for each in self.failbacks.values() if each.given_up_s is None]

    def make_watch(self) -> Any:
        # Records that the source acknowledged reach the destination later: the watch does not look for them there.
        there = CutWatch(self.source, self.recorder, self.failbacks)
        return LinksWatch(there, ClusterWatch(self.destination, self.here))

    @property
    def operations(self) -> int:
        return sum(len(each.history) for each in (self.recorder, self.here, self.all_here))

    async def run(self) -> None:
        """Everything from the first start to the last read; problems are in the recorder."""
        for site in (self.source, self.destination):
            site.add_nodes(1 if self.random.random() < ALONE else 3)
        async with self.watched():
            await self._run()
        self._verdict()

    async def _run(self) -> None:
        world, ledger, values = self.world, Ledger(), itertools.count(1)
        for machine in world.machines.values():
            machine.start()
        admin = Admin(self.source, "admin", 0, self.recorder, copies=len(self.source.machines))
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        for topic in (PAID, TRIMMED):
            await admin.create_surely(topic, PARTITIONS, configs)
        linking = LinkAdmin(self.destination, self.source, 71, self.recorder, self.promotions)
        await linking.begin()
        readers = self._readers(ledger)
        committer = Committer(self.source, "committer", 11, self.recorder, readers[0])
        writers = self._writers(self.source, "", self.recorder, values, ledger)
        self.old_writers = [each for each in writers if isinstance(each, LeavingWriter)]
        operator = Operator(self.source, 72, self.recorder)
        clients: list[Any] = [*writers, operator, linking, committer, *readers]
        promoter = Promoter(self.destination, 73, self.recorder, LINK, self.promotions.values())
        moved = self._moved(values, ledger)
        users: dict[str, list[Any]] = {PAID: [readers[0], committer], TRIMMED: [operator]}
        back = FailingBack(
            self.source,
            self.destination,
            86,
            self.recorder,
            self.failbacks.values(),
            lambda topic: self._leave(users[topic]),
            lambda topic: _stop(writers[:-1] if topic == PAID else writers[-1:]),
        )
        for client in clients:
            self._spawn(client.name, client.run())
        self._spawn(promoter.name, promoter.run())
        self._spawn(back.name, back.run())
        for topic, client in moved:
            work = begin_when_asked(self.promotions[topic], client, early=self.random.random() < EARLY)
            self._spawn(client.name, work)
        tasks = self.tasks
        await world.make_trouble(self.trouble_s)
        world.heal()
        for client in clients:
            client.stopping = True

        def who_waits() -> str:
            return f"waiting: {[name for name, task in tasks.items() if not task.done()] + self._unfinished()}"

        async with progress(world.loop, PROGRESS_S, who_waits, self.recorder.problems):
            await tasks[promoter.name]
            await tasks[back.name]
            await asyncio.sleep(MOVED_S if moved else 0.0)
            for _, client in moved:
                client.stopping = True
            await asyncio.gather(*tasks.values())
            await until(lambda: not self._unfinished(), pause_s=LOOK_EVERY_S)
            await self._read_all(readers, ledger)
            await until(lambda: self._offsets_followed(committer), pause_s=LOOK_EVERY_S)
            await until(self._offsets_are_below_cuts, pause_s=LOOK_EVERY_S)
        for client in [*clients, promoter, back, *(client for _, client in moved)]:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    def _spawn(self, name: str, work: Any) -> None:
        self.tasks[name] = self.world.loop.spawn(name, work, name=name)

    async def _leave(self, clients: list[Any]) -> None:
        _stop(clients)
        await asyncio.gather(*[self.tasks[client.name] for client in clients])

    def _writers(self, site: Site, prefix: str, recorder: Recorder, values: Iterator[int], ledger: Ledger) -> list[Any]:
        """The transactional writers, with the same ids at both sites; at the source, the other writers as well."""
        writers: list[Any] = [
            LeavingWriter(
                site,
                prefix + name,
                number + (80 if prefix else 0),
                recorder,
                topic=PAID,
                partitions=PARTITIONS,
                transactional_id=name,
                version=version,
                fights=len(site.machines) > 1,
                values=values,
                ledger=ledger,
                failback=None if prefix else self.failbacks.get(PAID),
            )
            for number, (name, version) in enumerate((("new", 2), ("old", 0)), 1)
        ]
        if prefix:
            return writers
        trimming = self._idempotent(site, "trimmed-writer", 3, Recorder(), values)
        trimming.failback = self.failbacks.get(TRIMMED)
        return [*writers, trimming]

    def _idempotent(
        self, site: Site, name: str, process: int, recorder: Recorder, values: Iterator[int]
    ) -> LeavingProducer:
        """A producer of the source's topic whose records are deleted, so that no check looks at what it wrote."""
        trimmed = [(TRIMMED, number) for number in range(PARTITIONS)]
        return LeavingProducer(
            site, name, process, recorder, partitions=trimmed, idempotent=True, values=values, acks=(-1,)
        )

    def _moved(self, values: Iterator[int], ledger: Ledger) -> list[tuple[str, Any]]:
        """(topic, client) of those that move over once the topic is promoted."""
        moved: list[tuple[str, Any]] = []
        if PAID in self.promotions:
            writers = self._writers(self.destination, "moved-", self.here, values, ledger)
            self.member = GroupMember(
                self.destination,
                "moved-member",
                84,
                self.here,
                group="group-of-committer",
                topic=PAID,
                promotion=self.promotions[PAID],
            )
            moved += [(PAID, client) for client in (*writers, self.member)]
        if TRIMMED in self.promotions:
            moved.append((TRIMMED, self._idempotent(self.destination, "moved-trimmed", 83, self.here, values)))
            if self.random.random() < 0.5:
                self.operator_here = Operator(self.destination, 85, Recorder())
                moved.append((TRIMMED, self.operator_here))
        return moved

    def _readers(self, ledger: Ledger) -> list[Any]:
        """The readers of committed records at both sites, and of all records at the destination."""
        settings: dict[str, Any] = {"topic": PAID, "partitions": PARTITIONS, "ledger": ledger}
        paid = [(PAID, number) for number in range(PARTITIONS)]
        return [
            FollowingReader(self.source, "reader-of-there", 9, self.recorder, **settings),
            MirrorReader(self.destination, "reader-of-here", 10, self.here, **settings),
            Reader(self.destination, "reader-of-all-here", 12, self.all_here, partitions=paid, sessions=True),
        ]

    async def _read_all(self, readers: list[Any], ledger: Ledger) -> None:
        """Let the readers, and some that begin now, read to the end of everything."""
        settings: dict[str, Any] = {"topic": PAID, "partitions": PARTITIONS, "ledger": ledger}
        paid = [(PAID, number) for number in range(PARTITIONS)]
        audits: list[Any] = [
            MirrorReader(self.destination, "committed-auditor", COMMITTED_AUDITOR, self.here, **settings),
            Reader(self.destination, "auditor", AUDITOR, self.all_here, partitions=paid, sessions=False),
        ]
        if TRIMMED in self.promotions:
            trimmed = [(TRIMMED, number) for number in range(PARTITIONS)]
            reader = Reader(self.destination, "trimmed-auditor", 97, self.here, partitions=trimmed, sessions=False)
            reader.positions = {(TRIMMED, number): self._start_here(TRIMMED, number) for number in range(PARTITIONS)}
            audits.append(reader)
        if PAID in self.failbacks:
            # Earlier readers of the old source have read records that are truncated by now.
            mirrors = self.failbacks[PAID] in self.failed_back
            recorder = self.here if mirrors else self.given_up
            audits.append(MirrorReader(self.source, "old-source-auditor", 98, recorder, **settings))
            readers = readers[1:]
        for reader in [*readers, *audits]:
            await self._drain(reader)
            for key in reader.positions if isinstance(reader, MirrorReader) else ():
                reader.check_markers(key)

    def _start_here(self, topic: str, number: int) -> int:
        leaders = [each for _, each in replicas(self.destination, led=True)]
        return next(each.log.log_start_offset for each in leaders if each.name == f"{topic}-{number}")

    async def _drain(self, reader: Any) -> None:
        while True:
            try:
                ends = await reader.end_offsets()
                while any(reader.positions[key] < end for key, end in ends.items()):
                    await reader.poll(max_wait_ms=100)
                return
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def _offsets_followed(self, committer: Committer) -> bool:
        """Whether the group has committed here what it has at the source; or what it has committed here itself."""
        group = "group-of-committer"
        try:
            here = await committed_offsets(Client(self.destination, "asks-here", 98, Recorder()).cluster, group)
            there = await committed_offsets(committer.cluster, group)
        except OdradekError:
            return False
        if self.member is None:
            return here == there
        for number, offset in self.member.acknowledged.items():
            found = here.get((PAID, number))
            if found is None or found.offset < offset:
                self.recorder.problems.append(f"{PAID}-{number}: {offset} was committed here, there is {found}")
        return True

    async def _offsets_are_below_cuts(self) -> bool:
        if PAID not in self.failbacks or self.failbacks[PAID].given_up_s is not None:
            return True
        client = Client(self.source, "asks-there", 99, Recorder())
        try:
            found = await jumped_over(client, self.failbacks[PAID], self.old_writers, ["group-of-committer"])
        except OdradekError:
            return False
        self.recorder.problems += found
        return True

    def _unfinished(self) -> list[str]:
        """The differences that are left: within each site, and between mirrors and their sources."""
        waiting = unconverged(self.source) + unconverged(self.destination)
        waiting += not_alike(self.source, self.destination, self.failed_back)
        if waiting:
            return waiting
        there = {each.name: each.log for _, each in replicas(self.source, led=True)}
        here = {each.name: each for _, each in replicas(self.destination, led=True)}
        waiting += [text for name, log in there.items() if (text := _open(name, log))]
        for name, log in there.items():
            if name.rpartition("-")[0] in self.promotions:
                continue
            mirror = here.get(name)
            marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark)
            found = None
            if mirror is not None:
                found = (mirror.log.log_start_offset, mirror.log.last_stable_offset, mirror.log.high_watermark)
            # A leader that crashed may have lost its log start offset, which its mirror has learned before.
            if found is None or found[0] < marks[0] or found[1:] != marks[1:]:
                waiting.append(f"{name} starts, is stable and ends at {marks}, its mirror at {found}")
        own = [each for each in here.values() if each.topic in self.promotions]
        return waiting + [text for each in own if (text := _open(each.name, each.log))]

    def _verdict(self) -> None:
        rules = Rules(idempotent=True, read_committed=True, assigned=True, drained=True, one_coordinator=False)
        starts = {each.name: each.log.log_start_offset for _, each in replicas(self.destination)}
        deletes = self.operator_here is not None and self.operator_here.deleted > 0
        own = without_deleted(self.here.history, starts if deletes else {})
        here = history_here(own, self.recorder.history, promoted=PAID in self.promotions)
        of_all = Rules(idempotent=False, read_committed=False, assigned=True, drained=False, one_coordinator=False)
        # Records behind the truncation cannot be read there.
        there = replace(rules, drained=PAID not in self.failbacks)
        for history, promised in ((self.recorder.history, there), (here, rules), (self.all_here.history, of_all)):
            if findings := find_anomalies(history, promised):
                self.recorder.problems.append(first(findings))
        self.recorder.problems += gone(self.here.history, PAID, COMMITTED_AUDITOR)
        self.recorder.problems += gone(self.all_here.history, PAID, AUDITOR)
        for topic in (PAID, TRIMMED):
            asked = self.promotions[topic].asked if topic in self.promotions else 0
            self.recorder.problems += written_before(self.here.history, topic, asked)
        for site in (self.source, self.destination):
            self.recorder.problems += different_logs(site)
        self.recorder.problems += self._different_mirrors()
        self.recorder.problems += other_batches(self.source, self.destination, self.failed_back)
        if PAID in self.failbacks:
            is_given_up = self.failbacks[PAID].given_up_s is not None
            kept = read_by((self.given_up if is_given_up else self.here).history)
            self.recorder.problems += lost_in_silence(self.source, self.recorder.history, PAID, kept)

    def _different_mirrors(self) -> list[str]:
        """A problem for each copy of a mirror that has other batches than the source's leader, or no single end."""
        logs = {name: batches_on(machine) for name, machine in self.world.machines.items()}
        leaders = {each.name: (host, each) for host, each in replicas(self.source, led=True)}
        epochs = first_own_epochs(self.destination)
        problems = []
        for host, mirror in replicas(self.destination):
            ours = logs[host].get(mirror.name, {})
            ours = {offset: batch for offset, batch in ours.items() if offset >= mirror.log.log_start_offset}
            end = max(ours, default=-1) + 1
            if (epoch := epochs.get(mirror.topic)) is not None:
                ours, own = parts(ours, epoch)
                end = min(own, default=end)
                if text := wrong_end(mirror, ours, own, epoch):
                    problems.append(f"{mirror.name} on {host}: {text}")
            if mirror.name not in leaders or mirror.topic in self.failbacks:
                continue  # it was added here, or is what the other one mirrors by now
            leader, partition = leaders[mirror.name]
            start = max(partition.log.log_start_offset, mirror.log.log_start_offset, _skipped_to(ours))
            theirs = logs[leader].get(mirror.name, {})
            theirs = {offset: batch for offset, batch in theirs.items() if offset >= start}
            if epoch is not None:
                theirs = {offset: batch for offset, batch in theirs.items() if offset < end}
            ours = {offset: batch for offset, batch in ours.items() if offset >= start}
            if theirs != ours:
                where = min(offset for offset in theirs.keys() | ours.keys() if theirs.get(offset) != ours.get(offset))
                problems.append(f"{mirror.name}: {host} has another batch than {leader} at offset {where}")
        return problems


def _stop(clients: list[Any]) -> None:
    for client in clients:
        client.stopping = True


def _open(name: str, log: Log) -> str:
    """The line about a log with an open transaction or uncommitted records; "" if it has neither."""
    marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    return f"{name} has an open transaction, or is not committed: {marks}" if len(set(marks[1:])) > 1 else ""


def _skipped_to(batches: dict[int, bytes]) -> int:
    """The offset at which a mirror went on behind records that its source had deleted; a crash may bring those back."""
    empty = [offset for offset, batch in batches.items() if not BatchHeader.read(batch).record_count]
    return max(empty, default=-1) + 1
