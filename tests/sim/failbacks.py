"""Failbacks in the world of two clusters: old sources become mirrors of the topics promoted from them; and the checks.

Until then clients write to the old source, too, so both have records of their own behind the promotion. Readers and
groups leave the old source before the failback begins; writers leave when it has begun, in the middle of transactions.
The steps are those of `odradek links failback`, each repeated until it is answered, as if the command was repeated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from odradek.admin import link_failbacks as steps
from odradek.admin.link_ends import promote
from odradek.client import admin
from odradek.client.cluster import check
from odradek.client.groups import committed_offsets
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.messages import create_partitions_request
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.record.batch import BatchHeader
from odradek.record.reader import read_batches, read_records
from odradek.replica.partition import Partition
from odradek.settings.links import Link, bootstrap_key
from tests.sim.clients import RETRY_S, Client, Producer, Recorder
from tests.sim.cluster_invariants import ClusterWatch, batches_on
from tests.sim.copiers import TransactionalWriter
from tests.sim.history import Operation, Outcome, Poll, Send
from tests.sim.invariants import identity
from tests.sim.polling import surely, until
from tests.sim.promotions import Promotion
from tests.sim.sites import Site
from tests.sim.world import PORT, Machine

BACK = "back"
# The offsets that writers commit, which are behind every truncation.
FAR = 1_000_000
_ASIDE = re.compile(r"/(?P<partition>[a-z]+-\d+)\.[^/]*\.failback-[^/]*\.log$")
# Partition -> (offset, value) of records.
Values = dict[str, set[tuple[int, int]]]


@dataclass(slots=True)
class Failback:
    """One that a seed draws.

    Attributes:
        after_s: behind the answer to the promotion.
        given_up_s: so long after it has begun it is given up, as by `odradek links failover`; None: it is not.
        asked, moving, done: the command was given; it has begun to set groups back; it was answered.
        cuts: partition -> where its log was cut.
    """

    promotion: Promotion
    after_s: float
    given_up_s: float | None = None
    asked: bool = False
    moving: bool = False
    done: bool = False
    cuts: dict[int, int] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return self.promotion.topic

    @property
    def is_under_way(self) -> bool:
        """Whether copies may be cut; after it was given up, by a leader that has less than they have."""
        return self.asked and (self.given_up_s is not None or not self.done)


class FailingBack(Client):
    """Gives the command, at the old source."""

    def __init__(
        self,
        here: Site,
        there: Site,
        process: int,
        recorder: Recorder,
        failbacks: Iterable[Failback],
        leave: Callable[[str], Awaitable[None]],
        stop_writing: Callable[[str], None],
    ) -> None:
        """
        Args:
            leave: returns when no client reads a topic here, or commits offsets of it outside of transactions.
        """
        super().__init__(here, "fails-back", process, recorder)
        self._there = Client(there, "fails-back-there", process + 1, recorder)
        self._failbacks = sorted(failbacks, key=lambda each: each.promotion.at_s + each.after_s)
        self._leave, self._stop_writing = leave, stop_writing
        self._address = ",".join(f"{host}:{PORT}" for host in there.machines)

    async def run(self) -> None:
        """Run all failbacks, one after the other."""
        if not self._failbacks:
            return
        link = bootstrap_key(BACK), admin.ConfigOperation.SET, self._address
        await surely(lambda: admin.alter_configs(self.cluster, admin.ResourceType.BROKER, "", [link]))
        for each in self._failbacks:
            await self._fail_back(each)

    async def _fail_back(self, failback: Failback) -> None:
        await until(lambda: failback.promotion.answered)
        await asyncio.sleep(failback.after_s)
        await self._leave(failback.topic)
        await surely(lambda: self._add_partitions(failback.topic))
        failback.asked = True
        while not failback.done:
            try:
                await self._once(failback)
            except OdradekError as error:
                self.world.report(f"{self.name}: {error}")
                await asyncio.sleep(RETRY_S)
        self.world.count("failback")

    async def _add_partitions(self, topic: str) -> None:
        """The other side must have as many partitions as this one. Raises OdradekError."""
        ours, theirs = await self.cluster.topic(topic), await self._there.cluster.topic(topic)
        if (count := len(ours.partitions)) > len(theirs.partitions):
            wanted = create_partitions_request.CreatePartitionsTopic(name=topic, count=count, assignments=None)
            request = create_partitions_request.CreatePartitionsRequest(topics=[wanted], timeout_ms=2000)
            answer = (await self._there.cluster.request(request, CreatePartitionsResponse)).results[0]
            check(answer.error_code, topic, answer.error_message)

    async def _once(self, failback: Failback) -> None:
        here, there, topic = self.cluster, self._there.cluster, failback.topic
        plan, begun = await steps.known_plan(here, BACK, [topic])
        if begun:
            await steps.compare(here, there, plan, begun)
            await asyncio.sleep(self.random.choice((0.0, 0.0, 1.0)))
            await steps.begin(here, there, plan)
        self._stop_writing(topic)
        if failback.given_up_s is not None:
            await self._give_up(failback, failback.given_up_s)
        elif plan.topics:
            found = await steps.cuts(here, BACK, [topic])
            failback.cuts = {number: offset for (_, number), offset in found.items()}
            failback.moving = True
            await steps.move_groups(here, found)
            await steps.check_source(here, there, plan)
            await steps.end(here, BACK, [topic])
        failback.done = True

    async def _give_up(self, failback: Failback, after_s: float) -> None:
        """Make it a topic of its own again. Raises OdradekError."""
        await asyncio.sleep(after_s)
        try:
            await promote(self.cluster, Link(BACK, ""), [failback.topic])
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise  # what is refused was carried out before, and its answer lost

    def violations(self) -> list[str]:
        return self.network.violations() + self._there.network.violations()


class LeavingWriter(TransactionalWriter):
    """A writer of a topic that is failed back: the offsets that it commits are behind the truncation.

    Attributes:
        offered: the last offset that its group committed before the command began to reset groups.
    """

    def __init__(self, *arguments: Any, failback: Failback | None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._failback = failback
        self.offered = 0
        if failback is not None:
            self._number = FAR

    async def _commit_offset(self, number: int) -> None:
        await super()._commit_offset(number)
        if self._failback is not None and not self._failback.moving:
            self.offered = number

    async def _check_offset(self, *, stable: bool) -> None:
        if self._failback is None or not self._failback.asked:
            await super()._check_offset(stable=stable)


class LeavingProducer(Producer):
    """It gives up what it has sent once its topic is failed back: that is refused for good, or was cut."""

    failback: Failback | None = None

    async def _send_window(self, topic: str, partition: int, window: list[tuple[Operation, bytes]]) -> None:
        if self.failback is not None and self.failback.asked:
            self.stopping = True
            window.clear()
            return
        await super()._send_window(topic, partition, window)


class CutWatch(ClusterWatch):
    """The watch of an old source: when a topic is truncated its offsets go back, and acknowledged records go."""

    def __init__(self, site: Site, recorder: Recorder, failbacks: dict[str, Failback]) -> None:
        super().__init__(site, recorder)
        self._failbacks = failbacks

    def _is_being_cut(self, topic: str) -> bool:
        return topic in self._failbacks and self._failbacks[topic].is_under_way

    def _check_partition(self, machine: Machine, partition: Partition) -> None:
        if self._is_being_cut(partition.topic):
            self._seen.pop((machine.name, machine.starts, partition.name), None)
            self._scans.pop((machine.name, partition.name), None)
            self._committed.pop(identity(partition), None)
        else:
            super()._check_partition(machine, partition)

    def _check_leader(self, machine: Machine, partition: Partition) -> None:
        if not self._is_being_cut(partition.topic):
            super()._check_leader(machine, partition)

    def _check_acknowledged(self, machine: Machine, partition: Partition) -> None:
        if partition.topic not in self._failbacks or not self._failbacks[partition.topic].asked:
            super()._check_acknowledged(machine, partition)


# -- checks -----------------------------------------------------------------------------------------------------------


def not_alike(old: Site, new: Site, failbacks: Iterable[Failback]) -> list[str]:
    """A line for each copy of a failed-back topic whose log ends at another offset than the log that it mirrors."""
    topics = [each.topic for each in failbacks]
    leaders = {each.name: each.log for _, each in _replicas(new, topics) if each.is_leader}
    waiting = []
    for host, mirror in _replicas(old, topics):
        log = leaders.get(mirror.name)
        ours = (mirror.log.log_end_offset, mirror.log.high_watermark)
        theirs = None if log is None else (log.log_end_offset, log.high_watermark)
        # A single leader's watermark is known to its followers a moment later.
        if theirs != ours:
            waiting.append(f"{mirror.name} on {host} ends at {ours}, what it mirrors at {theirs}")
    return waiting


def other_batches(old: Site, new: Site, failbacks: Iterable[Failback]) -> list[str]:
    """A problem for each copy of a failed-back topic that has other batches than the log that it mirrors."""
    topics = [each.topic for each in failbacks]
    logs = {name: batches_on(machine) for site in (old, new) for name, machine in site.machines.items()}
    leaders = {each.name: (host, each) for host, each in _replicas(new, topics) if each.is_leader}
    problems = []
    for host, mirror in _replicas(old, topics):
        leader, partition = leaders[mirror.name]
        ours, theirs = logs[host].get(mirror.name, {}), logs[leader].get(mirror.name, {})
        empty = [offset for offset, batch in ours.items() if not BatchHeader.read(batch).record_count]
        start = max(mirror.log.log_start_offset, partition.log.log_start_offset, max(empty, default=-1) + 1)
        ours, theirs = ({offset: batch for offset, batch in each.items() if offset >= start} for each in (ours, theirs))
        if ours != theirs:
            where = min(offset for offset in ours.keys() | theirs.keys() if ours.get(offset) != theirs.get(offset))
            problems.append(f"{mirror.name}: {host} was failed back, and has another batch than {leader} at {where}")
    return problems


def read_by(history: Iterable[Operation]) -> Values:
    """(offset, value) of all records that a history has read, by partition."""
    found: Values = {}
    for operation in history:
        for step in operation.steps:
            if isinstance(step, Poll):
                found.setdefault(step.partition, set()).update(step.records)
    return found


def lost_in_silence(old: Site, history: Iterable[Operation], topic: str, kept: Values) -> list[str]:
    """Problems with records that the old source acknowledged and that are neither kept nor in a file beside its logs.

    Args:
        kept: the committed records of the new source, or, if the failback was given up, of the old one.
    """
    for machine in old.machines.values():
        for path, data in sorted(machine.disk.snapshot().items()):
            if (match := _ASIDE.search(str(path))) is not None:
                kept.setdefault(match["partition"], set()).update(_values(data))
    return [
        f"{send.partition}: {send.value} was acknowledged at offset {send.offset}, and is neither there nor in a file"
        for operation in history
        if operation.outcome is Outcome.OK
        for send in operation.steps
        if isinstance(send, Send) and send.partition.startswith(f"{topic}-") and send.offset is not None
        if (send.offset, send.value) not in kept.get(send.partition, set())
    ][:3]


def _values(data: bytes) -> Iterator[tuple[int, int]]:
    for position, header in read_batches(data):
        if not header.is_control:
            for record in read_records(data[position : position + header.size_bytes], header):
                yield record.offset, int(record.value or b"-1")


async def jumped_over(
    client: Client, failback: Failback, writers: Iterable[LeavingWriter], groups: Iterable[str]
) -> list[str]:
    """Groups whose offsets are behind the cut, and would skip what the new source has there. Raises OdradekError."""
    problems = []
    offered = {f"group-of-{each.name}": each.offered for each in writers}
    for group in (*groups, *offered):
        for (topic, number), found in (await committed_offsets(client.cluster, group)).items():
            cut = failback.cuts.get(number) if topic == failback.topic else None
            # A transaction may commit a later offset for its group; its client is responsible for that.
            if cut is not None and cut < found.offset <= offered.get(group, found.offset):
                problems.append(f"{topic}-{number} was cut to {cut}, and {group} goes on at {found.offset}")
    return problems


def _replicas(site: Site, topics: list[str]) -> Iterator[tuple[str, Partition]]:
    for machine in site.machines.values():
        for partition in machine.broker.replicas if machine.running and machine.broker is not None else ():
            if partition.topic in topics:
                yield machine.name, partition
