"""Computes the lag of the groups coordinated here, for the metrics, with periodic requests to leaders.

The coordinator has the committed offsets, the leaders have the end offsets and the ages of records. Two ListOffsets are
sent: one for the end offsets of all partitions, which give the largest lags, and one for the age of the first unread
record of the partitions that are shown, in a field of our own (`protocol.extras`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.common.buggify import buggify
from odradek.common.errors import OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.real_threads import off_loop
from odradek.coordinator.group.lag import (
    Commit,
    GroupLagConfig,
    GroupLags,
    PartitionKey,
    commits_of,
    largest,
    with_seconds,
)
from odradek.log.search import first_record_ms
from odradek.protocol.extras import OFFSET_TIMES_LIMIT, UNKNOWN_TIME, offset_times_field, read_offset_times
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.server.handlers.list_offsets import LATEST

if TYPE_CHECKING:
    from odradek.common.ports import Clock
    from odradek.coordinator.group.service import GroupCoordinator
    from odradek.metadata.image import MetadataImage
    from odradek.replica.manager import ReplicaManager
    from odradek.replica.partition import Partition
    from odradek.server.network.peers import BrokerPeers

# Of one request.
PARTITIONS_AT_ONCE = 500
# The number in one turn of the event loop: the age of a record is read from the log.
PARTITIONS_A_TURN = 50
FIRST_ROUND_MS = 1000
_log = get_logger("server.background.group_lag")


class GroupLagJob:
    """The rounds of one coordinator."""

    def __init__(
        self,
        config: GroupLagConfig,
        clock: Clock,
        coordinator: GroupCoordinator,
        replicas: ReplicaManager,
        image: Callable[[], MetadataImage],
        peers: BrokerPeers,
        *,
        is_shown: bool,
    ) -> None:
        """`is_shown`: whether the metrics are served; otherwise no requests are sent."""
        self._config = config
        self._clock = clock
        self._coordinator = coordinator
        self._replicas = replicas
        self._image = image
        self._peers = peers
        self._is_shown = is_shown
        self._job: asyncio.Task[None] | None = None
        self.lags = GroupLags()

    def start(self) -> None:
        """Start, unless odradek.group.lag.interval.ms disables it."""
        if self._is_shown and self._config.interval_ms > 0:
            self._job = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Cancel the round under way."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _run(self) -> None:
        pause_ms = min(FIRST_ROUND_MS, self._config.interval_ms)
        while True:
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = self._config.interval_ms
            await buggify("server: before a round of group lags")
            try:
                self.lags = await self._round()
            except Exception as error:
                _log.bug("the lag of groups is not known", error)

    async def _round(self) -> GroupLags:
        commits, keys = await self._commits()
        ends = await self.ends(keys)
        # Of a million commits that takes a second, in which the loop has others to serve.
        lags = await off_loop(partial(largest, commits, ends, self._config.max_partitions))
        since_ms = await self._since_ms([lag.commit for lag in lags.shown if lag.records])
        return with_seconds(lags, since_ms, self._clock.now_ms())

    async def _commits(self) -> tuple[list[Commit], set[PartitionKey]]:
        """The commits of partitions that exist, and these partitions."""
        found: list[Commit] = []
        keys: set[PartitionKey] = set()
        for shard in list(self._coordinator.shards.values()):
            offsets = shard.machine.offsets
            for group_id in offsets.group_ids() if shard.runtime.active else ():
                image = self._image()
                some = [commit for commit in commits_of(offsets, group_id) if image.partition(*commit.key) is not None]
                found += some
                keys.update(commit.key for commit in some)
                await asyncio.sleep(0)
        return found, keys

    async def ends(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """The end offsets of partitions, without those whose leader does not respond."""
        ends: dict[PartitionKey, int] = {}

        def read_local(partition: Partition, key: PartitionKey) -> None:
            ends[key] = partition.log.high_watermark

        def set_end(key: PartitionKey, offset: int, _: Sequence[int]) -> None:
            ends[key] = offset

        await self._collect(dict.fromkeys(sorted(keys), ()), read_local, set_end)
        return ends

    async def _since_ms(self, commits: Iterable[Commit]) -> dict[Commit, int | None]:
        by_key: dict[PartitionKey, list[Commit]] = defaultdict(list)
        for commit in sorted(commits, key=lambda each: (each.key, each.group)):
            by_key[commit.key].append(commit)
        found: dict[Commit, int | None] = {}

        def read_local(partition: Partition, key: PartitionKey) -> None:
            log = partition.log
            for commit in by_key[key]:
                found[commit] = first_record_ms(log, commit.offset, log.high_watermark)

        def set_times(key: PartitionKey, _: int, times: Sequence[int]) -> None:
            for commit, time_ms in zip(by_key[key], times, strict=False):
                if time_ms != UNKNOWN_TIME:
                    found[commit] = None if time_ms < 0 else time_ms

        await self._collect(
            {key: [each.offset for each in some] for key, some in by_key.items()}, read_local, set_times
        )
        return found

    async def _collect(
        self,
        offsets: dict[PartitionKey, Sequence[int]],
        read_local: Callable[[Partition, PartitionKey], None],
        on_answer: Callable[[PartitionKey, int, Sequence[int]], None],
    ) -> None:
        """Read partitions that this broker leads, and send requests to other leaders; partitions of leaders that do not
        respond are omitted.

        Args:
            offsets: those whose timestamps are needed, by partition.
            on_answer: called with the end offset of a partition, and the timestamps.
        """
        image, own = self._image(), self._replicas
        elsewhere: dict[int, list[PartitionKey]] = defaultdict(list)
        for number, key in enumerate(offsets):
            partition, known = own.partition(*key), image.partition(*key)
            if partition is not None and partition.is_leader:
                _unless_failed(read_local, partition, key)
            elif known is not None and known.has_leader and known.leader != own.broker_id:
                elsewhere[known.leader].append(key)
            if number % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
                await asyncio.sleep(0)
        requests: list[Coroutine[Any, Any, None]] = [
            self._collect_from_leader(leader, keys, offsets, on_answer) for leader, keys in sorted(elsewhere.items())
        ]
        await asyncio.gather(*requests)

    async def _collect_from_leader(
        self,
        leader: int,
        keys: Sequence[PartitionKey],
        offsets: dict[PartitionKey, Sequence[int]],
        on_answer: Callable[[PartitionKey, int, Sequence[int]], None],
    ) -> None:
        for some in _in_requests(keys, offsets):
            try:
                answer = await self._peers.request(leader, _request(some, offsets), ListOffsetsResponse)
            except OdradekError as error:
                _log.debug(
                    "end offsets of a leader are unknown: the lag of groups has no value there",
                    leader=leader,
                    error=error,
                )
                return
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        on_answer((topic.name, each.partition_index), each.offset, read_offset_times(each))


def _unless_failed(
    read_local: Callable[[Partition, PartitionKey], None], partition: Partition, key: PartitionKey
) -> None:
    """Omit partitions that cannot be read: their consumers get the error."""
    try:
        read_local(partition, key)
    except (OSError, OdradekError) as error:
        _log.debug("the age of unread records is unknown", partition=partition.name, error=error)


def _in_requests(
    keys: Sequence[PartitionKey], offsets: dict[PartitionKey, Sequence[int]]
) -> Iterable[Sequence[PartitionKey]]:
    """The partitions in parts, each small enough for one request."""
    part: list[PartitionKey] = []
    count = 0
    for key in keys:
        if part and (len(part) >= PARTITIONS_AT_ONCE or count + len(offsets[key]) > OFFSET_TIMES_LIMIT):
            yield part
            part, count = [], 0
        part.append(key)
        count += len(offsets[key])
    if part:
        yield part


def _request(keys: Sequence[PartitionKey], offsets: dict[PartitionKey, Sequence[int]]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, number in keys:
        requested = ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=LATEST)
        if offsets[topic, number]:
            requested.unknown_tagged_fields = (offset_times_field(offsets[topic, number]),)
        topics[topic].append(requested)
    named = [ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=named)
