"""Promotions in the world of two clusters: the client that promotes, the clients that move, and the checks.

Clients of the destination have histories of their own, as a promotion separates them from the source's: records that
the source acknowledges later are not guaranteed here. All histories share one count of events and one list of problems.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from odradek.admin.link_ends import promote
from odradek.client import admin
from odradek.client.groups import CommittedOffset, commit_offsets, committed_offsets
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.metadata.model import ResourceType
from odradek.record.batch import BatchHeader
from odradek.record.control import ControlType
from odradek.replica.partition import Partition
from odradek.settings.links import Link, MirrorState, ended_mirrors, mirror_key
from tests.sim.clients import RETRY_S, Client, Producer, Recorder
from tests.sim.copiers import FollowingReader
from tests.sim.history import Operation, Outcome, Poll, Send
from tests.sim.polling import until
from tests.sim.sites import Site

Batches = dict[int, bytes]


class SideRecorder(Recorder):
    """A history of its own, on the scale of another one's events and with its problems."""

    def __init__(self, other: Recorder) -> None:
        super().__init__()
        self.problems = other.problems
        self._other = other

    def invoke(self) -> int:
        return self._other.invoke()

    def complete(self, operation: Operation) -> None:
        operation.completed = self._other.invoke()
        self.history.append(operation)


@dataclass(slots=True)
class Promotion:
    """One that a seed draws.

    Attributes:
        at_s: after the clients have begun.
        asked: the event before which it was not asked for; 0 where it was not yet.
        answered: whether the command has returned.
    """

    topic: str
    at_s: float
    asked: int = 0
    answered: bool = False


class Promoter(Client):
    """Promotes mirrors at the moments that were drawn, as `odradek links promote` does, however often it takes."""

    def __init__(
        self, site: Site, process: int, recorder: Recorder, link: str, promotions: Iterable[Promotion]
    ) -> None:
        super().__init__(site, f"promoter-of-{site.name}", process, recorder)
        self._link = Link(link, "")
        self._promotions = sorted(promotions, key=lambda each: each.at_s)

    async def run(self) -> None:
        """Promote all of them, one after the other."""
        began_s = self.world.loop.time()
        for each in self._promotions:
            await asyncio.sleep(max(0.0, began_s + each.at_s - self.world.loop.time()))
            each.asked = self.recorder.invoke()
            while not each.answered:
                each.answered = await self._promote(each.topic)
            self.world.count("promotion")

    async def _promote(self, topic: str) -> bool:
        try:
            await promote(self.cluster, self._link, [topic])
        except OdradekError as error:
            code = error.code if isinstance(error, ApiError) else None
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # It was paused before it was made.
                with contextlib.suppress(OdradekError):
                    key = mirror_key(self._link.name, "mirror", topic)
                    change = key, admin.ConfigOperation.SET, str(MirrorState.ACTIVE)
                    await admin.alter_configs(self.cluster, admin.ResourceType.BROKER, "", [change])
            await asyncio.sleep(RETRY_S)
            # A promotion that is refused was carried out before, and its response was lost.
            return code is ErrorCode.INVALID_REQUEST
        return True


class GroupMember(Client):
    """A group that moves to the destination: it commits here once the topic is promoted.

    Attributes:
        acknowledged: the furthest offset of each partition that was acknowledged.
    """

    def __init__(
        self, site: Site, name: str, process: int, recorder: Recorder, *, group: str, topic: str, promotion: Promotion
    ) -> None:
        super().__init__(site, name, process, recorder)
        self.stopping = False
        self.acknowledged: dict[int, int] = {}
        self._group, self._topic, self._promotion = group, topic, promotion
        self._next = 0

    async def run(self) -> None:
        """Commit rising offsets until `stopping`: they are far above any that the source has committed."""
        while not self.stopping:
            try:
                if self._promotion.answered:
                    await self._commit(self.random.randrange(2))
            except OdradekError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self.random.choice((0.05, 0.2, 0.5)))

    async def _commit(self, number: int) -> None:
        self._next += 1
        offset = 1_000_000 + self._next
        await commit_offsets(self.cluster, self._group, {(self._topic, number): offset})
        self.acknowledged[number] = offset

    async def committed(self) -> dict[tuple[str, int], CommittedOffset]:
        """The committed offsets of the group for the topic. Raises ApiError."""
        found = await committed_offsets(self.cluster, self._group)
        return {key: each for key, each in found.items() if key[0] == self._topic}


class MirrorReader(FollowingReader):
    """A reader of committed records of a mirror that becomes a topic: the producers behind that moment are others.

    The markers by which a mirror ends have the epochs of the source's producers, as it may have given them to the
    marker before: each is the last of its producer, and the end of the mirror follows.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._aborted: dict[tuple[str, int], list[tuple[str, int, int]]] = {}

    def _marker(self, key: tuple[str, int], name: str, producer_id: int, epoch: int, kind: ControlType | None) -> None:
        if kind is ControlType.LEADER_CHANGE:
            self._markers[key].clear()
            self._aborted.pop(key, None)
        elif kind is ControlType.ABORT and (producer_id, epoch) in self._markers[key]:
            self._dropping[key].discard(producer_id)
            self._aborted.setdefault(key, []).append((name, producer_id, epoch))
        else:
            if kind is not ControlType.ABORT:  # else it may be another producer's at the same end of the mirror
                self.check_markers(key)
            super()._marker(key, name, producer_id, epoch, kind)

    def check_markers(self, key: tuple[str, int]) -> None:
        """Report markers that were there twice, and that no end of the mirror came behind."""
        for name, producer_id, epoch in self._aborted.pop(key, []):
            # It is checked as any marker, and its transaction is over: the producer's next one may be open by now.
            super()._marker(key, name, producer_id, epoch, ControlType.COMMIT)


async def begin_when_asked(promotion: Promotion, client: Any, *, early: bool) -> None:
    """Run a client that moves over, from when the promotion is asked for; or `early`, when all it writes is refused.

    A producer of several batches at a time waits for the answer: it would send them again under the same sequences,
    though a mirror's refusal is final, and one behind them may be the first that is taken.
    """
    if isinstance(client, Producer):
        await until(lambda: promotion.answered or client.stopping)
    else:
        await until(lambda: early or promotion.asked or client.stopping)
    await client.run()


# -- what is checked ---------------------------------------------------------------------------------------------------


def first_own_epochs(site: Site) -> dict[str, int]:
    """The topics that were promoted, by the site's metadata, and the first leader epoch of each that is its own."""
    for machine in site.machines.values():
        if machine.broker is not None:
            return ended_mirrors(machine.broker.publisher.image.config(ResourceType.BROKER, ""))
    return {}


def history_here(own: Sequence[Operation], source: Sequence[Operation], *, promoted: bool) -> list[Operation]:
    """The operations at the destination on one topic, and those of the source's clients, in one history.

    After a promotion, a transaction of the source may be here, or aborted here, or not here, in each partition
    independently: so it is split by partition, with an unknown outcome. A transaction that the source has aborted stays
    aborted.
    """
    there = list(source) if not promoted else [each for operation in source for each in _in_each_partition(operation)]
    return sorted([*own, *there], key=lambda operation: operation.completed)


def _in_each_partition(operation: Operation) -> Iterator[Operation]:
    sends = [step for step in operation.steps if isinstance(step, Send)]
    outcome = Outcome.FAIL if operation.outcome is Outcome.FAIL else Outcome.INFO
    for partition in dict.fromkeys(send.partition for send in sends):
        yield replace(operation, outcome=outcome, steps=[each for each in sends if each.partition == partition])


def gone(history: Iterable[Operation], topic: str, auditor: int) -> list[str]:
    """Problems with records that a reader of the topic saw and the last reader (process `auditor`) does not find."""
    seen: dict[bool, dict[tuple[str, int], int]] = {False: {}, True: {}}
    for operation in history:
        for step in operation.steps:
            if isinstance(step, Poll) and step.partition.startswith(f"{topic}-"):
                found = seen[operation.process == auditor]
                found.update({(step.partition, offset): value for offset, value in step.records})
    return [
        f"{partition}: {value} was read at offset {offset}, where there is {seen[True].get((partition, offset))} now"
        for (partition, offset), value in seen[False].items()
        if seen[True].get((partition, offset)) != value
    ][:3]


def written_before(history: Iterable[Operation], topic: str, asked: int) -> list[str]:
    """Writes to a mirror that were acknowledged before its promotion was asked for; 0 where it never was."""
    return [
        f"process {operation.process} wrote to a mirror: {operation.steps[:1]}"
        for operation in history
        if operation.outcome is Outcome.OK and (not asked or operation.completed < asked)
        if any(isinstance(step, Send) and step.partition.startswith(f"{topic}-") for step in operation.steps)
    ][:1]


def without_deleted(history: Iterable[Operation], starts: dict[str, int]) -> list[Operation]:
    """A history without records below `starts`, which were deleted, and records at an unknown offset."""
    kept = []
    for operation in history:
        steps = [step for step in operation.steps if not (isinstance(step, Send) and _may_be_deleted(step, starts))]
        if steps:
            kept.append(replace(operation, steps=steps))
    return kept


def _may_be_deleted(send: Send, starts: dict[str, int]) -> bool:
    start = starts.get(send.partition, 0)
    return start > 0 and (send.offset is None or send.offset < start)


def parts(ours: Batches, first_own_epoch: int) -> tuple[Batches, Batches]:
    """A promoted log's batches: the source's, and those of this cluster."""
    where = [
        offset for offset, batch in ours.items() if BatchHeader.read(batch).partition_leader_epoch >= first_own_epoch
    ]
    begin = min(where, default=max(ours, default=-1) + 1)
    before = {offset: batch for offset, batch in ours.items() if offset < begin}
    return before, {offset: batch for offset, batch in ours.items() if offset >= begin}


def wrong_end(mirror: Partition, before: Collection[int], own: Batches, first_own_epoch: int) -> str:
    """The error in the end of a promoted mirror; "" if it is markers and then one control batch without producer id."""
    ends = []
    for offset, batch in sorted(own.items()):
        header = BatchHeader.read(batch)
        if header.partition_leader_epoch < first_own_epoch:
            return f"a batch of the source's epochs is at {offset}, behind the end of the mirror"
        if header.is_control and not header.has_producer_id:
            ends.append(offset)
        elif not header.is_control and not ends and (before or not mirror.log.log_start_offset):
            return f"records at {offset} are before the end of the mirror"
    if len(ends) > 1:
        return f"the mirror ends at {ends}"
    if not ends and (before or not mirror.log.log_start_offset):
        return "the mirror was promoted, and its log does not say so"
    return ""
