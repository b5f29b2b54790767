"""Clients that read: assigned consumers with and without fetch sessions, and a committer of group offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.client.cluster import check
from odradek.client.connection import Connection
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.messages import fetch_request, list_offsets_request, offset_commit_request, offset_fetch_request
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.record.batch import BatchHeader
from odradek.record.reader import read_batches, read_records
from tests.sim.clients import RETRY_S, Client, Recorder, hang_up
from tests.sim.history import Commit, EndOffset, Marks, Operation, Outcome, Poll
from tests.sim.world import World

# The last version that names topics rather than ids.
FETCH_VERSION = 12
LATEST = -1
OFFSET_COMMIT_VERSION = 7
OFFSET_FETCH_VERSION = 7

Refuses = Callable[[bytes, BatchHeader], bool]


def values_of(data: bytes, from_offset: int, refuses: Refuses) -> tuple[list[tuple[int, int]], int, int]:
    """The records of whole batches at or above an offset, up to one that is refused.

    Returns:
        (offset, value) of each record; the next offset; the leader epoch of the last batch, -1 where there is none.
    """
    found: list[tuple[int, int]] = []
    next_offset, leader_epoch = from_offset, -1
    for position, header in read_batches(data):
        batch = data[position : position + header.size_bytes]
        if refuses(batch, header):
            break
        if header.last_offset < from_offset:
            continue
        if not header.is_control:
            records = read_records(batch, header)
            found += [(each.offset, int(each.value or b"-1")) for each in records if each.offset >= from_offset]
        next_offset, leader_epoch = header.last_offset + 1, header.partition_leader_epoch
    return found, next_offset, leader_epoch


class Link:
    """A connection to one leader, and the fetch session over it."""

    def __init__(self, node_id: int, connection: Connection, sessions: bool) -> None:
        self.node_id = node_id
        self.connection = connection
        self.session = (0, -1)
        self.sent_offsets: dict[tuple[str, int], int] = {}
        self.reset(sessions)

    def reset(self, sessions: bool) -> None:
        """Begin a new session, or none."""
        self.session = (0, 0 if sessions else -1)
        self.sent_offsets.clear()


class Reader(Client):
    """Reads all partitions of some topics from the beginning, each record once."""

    def __init__(
        self,
        world: World,
        name: str,
        process: int,
        recorder: Recorder,
        *,
        partitions: list[tuple[str, int]],
        sessions: bool,
    ) -> None:
        super().__init__(world, name, process, recorder)
        self.positions = dict.fromkeys(partitions, 0)
        self._sessions = sessions
        self._leaders: dict[tuple[str, int], int] = {}
        # The newest leader epochs heard of: a leader that missed an election is not believed, as by clients (KIP-320).
        self._epochs: dict[tuple[str, int], int] = {}
        # The leader epochs of what was read last.
        self._read_epochs: dict[tuple[str, int], int] = {}
        self._links: dict[int, Link] = {}
        self._turn = 0
        self._first_poll = True
        # The last marks that a process answered for a partition, so that the same are not recorded again and again.
        self._seen_marks: dict[tuple[str, str], Marks] = {}
        self.stopping = False

    async def run(self) -> None:
        """Read until `stopping`."""
        while not self.stopping:
            try:
                await self.poll()
            except OdradekError:
                self.close_connections()
                await asyncio.sleep(RETRY_S)

    async def poll(self, max_wait_ms: int | None = None) -> int:
        """One Fetch of all partitions that one broker leads, another broker each time; returns the number of records.

        Raises:
            OdradekError: the connection is lost, or there is no leader.
        """
        link = await self._next_link()
        wait_ms = self.random.choice((0, 50, 500)) if max_wait_ms is None else max_wait_ms
        invoked = self.recorder.invoke()
        request = self._request(link, wait_ms)
        response = await self.request(link.connection, request, FetchResponse, FETCH_VERSION)
        if response.error_code:
            link.reset(self._sessions)
            raise ApiError(ErrorCode(response.error_code))
        if self._sessions and response.session_id:
            session_id, epoch = link.session
            link.session = (response.session_id, 1 if session_id != response.session_id else epoch + 1)
        return self._process(response, invoked, self.network.process_at(link.connection))

    async def _next_link(self) -> Link:
        if any(key not in self._leaders for key in self.positions):
            await self._find_leaders()
        node_ids = list(dict.fromkeys(self._leaders[key] for key in self.positions))
        self._turn += 1
        node_id = node_ids[self._turn % len(node_ids)]
        link = self._links.get(node_id)
        if link is None or not link.connection.is_open:
            link = self._links[node_id] = Link(node_id, await self.cluster.connection_to(node_id), self._sessions)
        return link

    async def _find_leaders(self) -> None:
        for topic in dict.fromkeys(topic for topic, _ in self.positions):
            for each in (await self.cluster.topic(topic)).partitions:
                if (topic, each.partition_index) in self.positions:
                    check(each.error_code, f"{topic}-{each.partition_index}")
                    key = (topic, each.partition_index)
                    if each.leader_epoch < self._epochs.get(key, -1):
                        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
                    self._leaders[key], self._epochs[key] = each.leader_id, each.leader_epoch

    def close_connections(self) -> None:
        """Look for the leaders again, over new connections: responses on these may still come."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self._leaders.clear()

    def _request(self, link: Link, wait_ms: int) -> fetch_request.FetchRequest:
        topics: dict[str, fetch_request.FetchTopic] = {}
        for (topic, partition), offset in self.positions.items():
            if self._leaders[topic, partition] != link.node_id or link.sent_offsets.get((topic, partition)) == offset:
                continue  # another's, or the session knows it
            asked = fetch_request.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=self.random.choice((1, 300, 100_000)),
                current_leader_epoch=self._epochs[topic, partition],
                last_fetched_epoch=-1,
            )
            topics.setdefault(topic, fetch_request.FetchTopic(topic=topic)).partitions.append(asked)
            if self._sessions:
                link.sent_offsets[topic, partition] = offset
        return fetch_request.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.random.choice((1, 1000, 1 << 20)),
            isolation_level=self.random.randint(0, 1),
            session_id=link.session[0],
            session_epoch=link.session[1],
            topics=list(topics.values()),
        )

    def _process(self, response: FetchResponse, invoked: int, source: str) -> int:
        steps: list[Any] = []
        marks: list[Any] = []
        count = 0
        for topic in response.responses:
            for answer in topic.partitions:
                key = (topic.topic, answer.partition_index)
                name = f"{topic.topic}-{answer.partition_index}"
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.problem(f"{name}: offset {self.positions[key]} was there and is gone")
                if answer.error_code:
                    self._leaders.pop(key, None)
                    for link in self._links.values():
                        link.sent_offsets.pop(key, None)
                    continue
                records: Any = answer.records
                data = b"" if records is None else bytes(records)
                found, next_offset = self.read(key, data, partial(self.refuses, name))
                if found and next_offset > answer.high_watermark:
                    self.problem(f"{name}: read up to {next_offset}, above the watermark {answer.high_watermark}")
                if found:
                    steps.append(Poll(name, found))
                    count += len(found)
                self.positions[key] = next_offset
                marks += self.new_marks(Marks(name, source, -1, answer.high_watermark, answer.last_stable_offset))
        self._record(invoked, steps, marks)
        return count

    def read(self, key: tuple[str, int], data: bytes, refuses: Refuses) -> tuple[list[tuple[int, int]], int]:
        """`values_of` from the position of a partition; it stores the leader epoch, to commit it with an offset."""
        found, next_offset, leader_epoch = values_of(data, self.positions[key], refuses)
        if leader_epoch >= 0:
            self._read_epochs[key] = leader_epoch
        return found, next_offset

    def read_epoch(self, key: tuple[str, int]) -> int:
        """The leader epoch of what was read last of a partition; -1 where nothing was."""
        return self._read_epochs.get(key, -1)

    def heard_of_epoch(self, key: tuple[str, int], leader_epoch: int) -> None:
        """An offset was committed behind a record of this epoch: an older leader may lack it, and is not asked."""
        self._read_epochs[key] = leader_epoch
        if leader_epoch > self._epochs.get(key, -1):
            self._epochs[key] = leader_epoch
            self._leaders.pop(key, None)

    def new_marks(self, marks: Marks) -> list[Marks]:
        """These, where they differ from the last ones of the same process."""
        key = (marks.source, marks.partition)
        if self._seen_marks.get(key) == marks:
            return []
        self._seen_marks[key] = marks
        return [marks]

    def _record(self, invoked: int, polls: list[Any], marks: list[Any]) -> None:
        """One fetch that succeeded, where it returned anything."""
        if polls or marks:
            assigns = self._first_poll and bool(polls)
            self.recorder.complete(
                Operation(self.process, Outcome.OK, [*polls, *marks], invoked=invoked, assigns=assigns)
            )
        if polls:
            self._first_poll = False

    async def end_offsets(self) -> dict[tuple[str, int], int]:
        """ListOffsets(latest) of every partition, into the history too. Raises OdradekError."""
        await self._find_leaders()
        ends: dict[tuple[str, int], int] = {}
        for node_id in dict.fromkeys(self._leaders[key] for key in self.positions):
            ends.update(await self._end_offsets_at(node_id))
        return ends

    async def _end_offsets_at(self, node_id: int) -> dict[tuple[str, int], int]:
        connection = await self.cluster.connection_to(node_id)
        invoked = self.recorder.invoke()
        topics: dict[str, list_offsets_request.ListOffsetsTopic] = {}
        for topic, partition in self.positions:
            if self._leaders[topic, partition] != node_id:
                continue
            entry = topics.setdefault(topic, list_offsets_request.ListOffsetsTopic(name=topic))
            entry.partitions.append(
                list_offsets_request.ListOffsetsPartition(
                    partition_index=partition, timestamp=LATEST, current_leader_epoch=-1
                )
            )
        request = list_offsets_request.ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
        response = await self.request(connection, request, ListOffsetsResponse, 6)
        ends: dict[tuple[str, int], int] = {}
        source = self.network.process_at(connection)
        marks: list[Any] = []
        for each in response.topics:
            for answer in each.partitions:
                name = f"{each.name}-{answer.partition_index}"
                check(answer.error_code, name)
                ends[each.name, answer.partition_index] = answer.offset
                marks.append(Marks(name, source, answer.leader_epoch, answer.offset))
        steps: list[Any] = [EndOffset(f"{topic}-{partition}", offset) for (topic, partition), offset in ends.items()]
        self.recorder.complete(Operation(self.process, Outcome.OK, [*steps, *marks], invoked=invoked))
        return ends

    async def drain(self) -> None:
        """Read everything up to the ends as they are now. Raises OdradekError, RuntimeError where reads get stuck."""
        ends = await self.end_offsets()
        idle = 0
        while any(self.positions[key] < end for key, end in ends.items()):
            if await self.poll(max_wait_ms=100):
                idle = 0
                continue
            idle += 1
            # A broker that does not know the newest leader yet names an older one, and that refuses at once.
            await asyncio.sleep(0.1)
            if idle > 20:
                missing = {f"{key[0]}-{key[1]}": (self.positions[key], end) for key, end in ends.items()}
                raise RuntimeError(f"{self.name} gets nothing more; (position, end): {missing}")


class Committer(Client):
    """Commits rising offsets of one group, and asks what is committed."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder, reader: Reader) -> None:
        """Commits no offset that `reader` has not passed."""
        super().__init__(world, name, process, recorder)
        self._reader = reader
        partitions = [f"{topic}-{partition}" for topic, partition in reader.positions]
        self._group = f"group-of-{name}"
        self._next = dict.fromkeys(partitions, 0)
        self._acknowledged: dict[str, int] = {}
        self.stopping = False

    async def run(self) -> None:
        """Commit and fetch until `stopping`."""
        while not self.stopping:
            partition = self.random.choice(list(self._next))
            try:
                topic, _, number = partition.rpartition("-")
                may_commit = self._next[partition] < self._reader.positions[topic, int(number)]
                await (self._commit(partition) if may_commit and self.random.random() < 0.6 else self.fetch(partition))
            except OdradekError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self.random.choice((0.01, 0.1, 0.4)))

    async def _coordinator(self) -> Connection:
        return await self.cluster.connection_to(await self.cluster.coordinator(self._group))

    async def _commit(self, partition: str) -> None:
        self._next[partition] += 1
        topic, _, number = partition.rpartition("-")
        commit = Commit(self._group, partition, self._next[partition])
        operation = Operation(self.process, Outcome.INFO, [commit], invoked=self.recorder.invoke())
        wanted = offset_commit_request.OffsetCommitRequestPartition(
            partition_index=int(number), committed_offset=commit.offset, committed_metadata=None
        )
        request = offset_commit_request.OffsetCommitRequest(
            group_id=self._group,
            topics=[offset_commit_request.OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )
        connection = await self._coordinator()
        try:
            response = await self.request(connection, request, OffsetCommitResponse, OFFSET_COMMIT_VERSION)
            if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                operation.outcome = Outcome.OK
                self._acknowledged[partition] = commit.offset
        except OdradekError as error:
            # An unknown commit must not take effect behind a later one: its connection ends first.
            hang_up(connection, error)
            raise
        finally:
            self.recorder.complete(operation)

    async def fetch(self, partition: str) -> int:
        """The committed offset of one partition; -1 if there is none. Raises OdradekError."""
        topic, _, number = partition.rpartition("-")
        invoked = self.recorder.invoke()
        request = offset_fetch_request.OffsetFetchRequest(
            group_id=self._group,
            topics=[offset_fetch_request.OffsetFetchRequestTopic(name=topic, partition_indexes=[int(number)])],
        )
        response = await self.request(await self._coordinator(), request, OffsetFetchResponse, OFFSET_FETCH_VERSION)
        check(response.error_code, self._group)
        answer = response.topics[0].partitions[0]
        check(answer.error_code, self._group)
        offset = int(answer.committed_offset)
        # With several brokers, one that was paused may answer as the coordinator that it was before.
        alone = len(self.world.machines) == 1
        if alone and offset < 0 and self._acknowledged.get(partition):
            self.problem(f"{partition}: nothing is committed, though {self._acknowledged[partition]} was acknowledged")
        if offset >= 0:
            step = Commit(self._group, partition, offset, fetched=True)
            self.recorder.complete(Operation(self.process, Outcome.OK, [step], invoked=invoked))
        return offset
