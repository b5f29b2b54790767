"""A client that deletes: records, and topics that are recreated under the same names.

Topics are written to and deleted by their ids, so that a request of unknown fate that arrives late means the topic that
it was meant for. Requests by name (CreateTopics, DeleteRecords) may arrive late: a topic may exist again, and the
records of a topic below the highest requested offset may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.client.admin import create_topic
from odradek.client.cluster import check
from odradek.client.groups import list_offsets
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.messages import delete_records_request, delete_topics_request
from odradek.protocol.messages import produce_request as produce
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.chaos_clients import ChaosClient
from tests.sim.clients import RETRY_S, TIMEOUT_MS, Recorder, only_partition
from tests.sim.history import Poll
from tests.sim.readers import Reader
from tests.sim.world import World

NAMES = ("passing-a", "passing-b")
EARLIEST = -2
# The first versions that name topics by their ids.
PRODUCE_VERSION, DELETE_TOPICS_VERSION = 13, 6
# A broker may be behind for so long after the faults have ended.
CATCH_UP_S = 20.0
PAUSES_S = (0.02, 0.1, 0.5)
SETTINGS = {
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
    # Short, so that deleted files are gone from the disks before a run ends.
    "file.delete.delay.ms": "500",
    # Short, so that there is always a rolled segment, which is flushed while its topic is deleted.
    "segment.ms": "10",
    "flush.ms": "50",
}


@dataclass
class Passing:
    """One topic that surely is there, until its deletion is asked for.

    `written` are the records that were acknowledged: offset -> value.
    """

    topic_id: UUID
    written: dict[int, int] = field(default_factory=dict)


class Remover(ChaosClient):
    """Makes topics, writes to them, deletes records and topics.

    Attributes:
        deleted: ids of topics whose deletion was acknowledged.
        asked: name -> offset below which all may be gone.
    """

    def __init__(
        self,
        world: World,
        name: str,
        process: int,
        recorder: Recorder,
        *,
        copies: int,
        settings: Mapping[str, str] | None = None,
        keyed: bool = False,
    ) -> None:
        """
        Args:
            settings: of its topics, beside `SETTINGS`.
            keyed: each record has a key of its own, so that a compaction takes none away.
        """
        super().__init__(world, name, process, recorder)
        self._settings = {**SETTINGS, **(settings or {})}
        self._keyed = keyed
        self.deleted: dict[UUID, None] = {}
        self.asked = dict.fromkeys(NAMES, 0)
        self._copies = copies
        self._topics: dict[str, Passing] = {}
        self._pending_deletion: dict[UUID, None] = {}
        self._value = 0

    def pause_s(self) -> float:
        return self.random.choice(PAUSES_S)

    async def finish(self) -> None:
        """Delete what is still to be deleted, and look at what is left."""
        until_s = self.world.loop.time() + CATCH_UP_S
        while True:
            try:
                for topic_id in tuple(self._pending_deletion):
                    await self._delete(topic_id)
                for name, topic in self._topics.items():
                    await self._verify(name, topic, until_s)
                return
            except OdradekError:
                await asyncio.sleep(RETRY_S)

    async def act(self) -> None:
        name = self.random.choice(NAMES)
        chance = self.random.random()
        topic = self._topics.get(name)
        if topic is None:
            await self._make(name)
        elif chance < 0.7:
            await self._write(name, topic)
        elif chance < 0.85 and topic.written:
            await self._delete_records(name, topic)
        else:
            # Deleted for certain, or not known: nothing is expected of it from here on.
            del self._topics[name]
            self._pending_deletion[topic.topic_id] = None
            if self.random.random() < 0.7:
                await self._write_under_deletion(name, topic)
            else:
                await self._delete(topic.topic_id)

    async def _write_under_deletion(self, name: str, topic: Passing) -> None:
        """Delete a topic while it is written to, and recreate it at once, while its rolled segments are flushed."""
        writes = [asyncio.ensure_future(self._write(name, topic)) for _ in range(self.random.choice((1, 3)))]
        await self.moment(name)
        try:
            await self._delete(topic.topic_id)
            await self._make(name)
        finally:
            await asyncio.gather(*writes, return_exceptions=True)

    async def moment(self, name: str) -> None:
        """Return when a topic that is written to is to be deleted."""
        await asyncio.sleep(self.random.uniform(0, 0.02))

    async def _make(self, name: str) -> None:
        for topic_id in tuple(self._pending_deletion):
            await self._delete(topic_id)
        try:
            await create_topic(
                self.cluster, name, partitions=1, replication_factor=self._copies, configs=self._settings
            )
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        found = (await self.cluster.topic(name)).topic_id
        if found not in self.deleted:  # a broker that is behind answers with the one before
            self.world.count("topic made")
            self._topics[name] = Passing(found)

    async def _delete(self, topic_id: UUID) -> None:
        """Ask once. Raises OdradekError."""
        state = delete_topics_request.DeleteTopicState(name=None, topic_id=topic_id)
        request = delete_topics_request.DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        connection = await self.cluster.any_connection()
        response = await self.request(connection, request, DeleteTopicsResponse, DELETE_TOPICS_VERSION)
        (answer,) = response.responses
        if answer.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            check(answer.error_code, str(topic_id), answer.error_message)
            self.world.count("topic deleted")
        del self._pending_deletion[topic_id]
        self.deleted[topic_id] = None

    async def _write(self, name: str, topic: Passing) -> None:
        connection = await self.leader_of(name, 0)
        values = [self._value + number for number in range(self.random.choice((1, 2, 5)))]
        self._value = values[-1] + 1
        now_ms = self.clock.now_ms()
        texts = [str(value).encode() for value in values]
        records = build_batch([Record(text if self._keyed else None, text, timestamp_ms=now_ms) for text in texts])
        data = produce.TopicProduceData(
            topic_id=topic.topic_id, partition_data=[produce.PartitionProduceData(index=0, records=records)]
        )
        request = produce.ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        answer = only_partition(await self.request(connection, request, ProduceResponse, PRODUCE_VERSION))
        check(answer.error_code, name)
        topic.written.update((answer.base_offset + number, value) for number, value in enumerate(values))

    async def _delete_records(self, name: str, topic: Passing) -> None:
        offset = self.random.choice(list(topic.written)) + 1
        self.asked[name] = max(self.asked[name], offset)
        wanted = delete_records_request.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = delete_records_request.DeleteRecordsRequest(
            topics=[delete_records_request.DeleteRecordsTopic(name=name, partitions=[wanted])], timeout_ms=TIMEOUT_MS
        )
        response = await self.request(await self.leader_of(name, 0), request, DeleteRecordsResponse)
        answer = response.topics[0].partitions[0]
        check(answer.error_code, name)
        self.world.count("records deleted")
        if not offset <= answer.low_watermark <= self.asked[name]:
            self.problem(f"{name}: records were to be deleted up to {offset}, and are up to {answer.low_watermark}")

    # -- in the end -------------------------------------------------------------------------------------------------

    async def _verify(self, name: str, topic: Passing, until_s: float) -> None:
        """Check that all acknowledged records are there, except those that may be deleted. Raises OdradekError.

        A leader that was cut off may not know yet that another one leads and has newer records: until then it is asked
        again.
        """
        if (await self.cluster.topic(name)).topic_id != topic.topic_id:
            # A broker may be behind; one that is not says so for good, and then the run does not end.
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, name)
        start = (await list_offsets(self.cluster, {(name, 0): EARLIEST}))[name, 0]
        if start > self.asked[name]:
            self.problem(f"{name} begins at {start}, deleted was what lies below {self.asked[name]}")
        found = Recorder()
        reader = Reader(self.world, f"{self.name}-reader", self.process, found, partitions=[(name, 0)], sessions=False)
        reader.positions[name, 0] = start
        await reader.drain()
        there = dict(
            record
            for operation in found.history
            for step in operation.steps
            if isinstance(step, Poll)
            for record in step.records
        )
        missing = {
            offset: (value, there.get(offset))
            for offset, value in topic.written.items()
            if offset >= start and there.get(offset) != value
        }
        if missing and self.world.loop.time() < until_s:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, name)
        if missing:
            self.problem(f"{name}: offset -> (acknowledged, found) {missing}; it begins at {start}")

    def left_over(self) -> list[str]:
        """A problem for each node that still knows a deleted topic, or still has it on a disk."""
        problems: list[str] = []
        for machine in self.world.machines.values():
            if machine.broker is None:
                continue
            known = machine.broker.publisher.image.topics_by_id
            problems += [f"{machine.name} knows {topic_id}, deleted" for topic_id in self.deleted if topic_id in known]
            partitions: Any = machine.broker.replicas if machine.is_broker else ()
            problems += [
                f"{machine.name} has {partition.name} of {partition.topic_id}, deleted"
                for partition in partitions
                if partition.topic_id in self.deleted
            ]
        return problems
