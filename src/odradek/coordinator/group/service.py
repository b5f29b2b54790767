"""The group coordinator of this broker: one shard for each partition of __consumer_offsets that it leads.

request -> shard of the group -> runtime.run(machine operation) -> answer, or parked until it is completed
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.common.turns import Turns, in_slices
from odradek.coordinator.expressions import OffLoop
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller, check_request
from odradek.coordinator.group.consumer.regex import EVERY_TOPIC, TopicFilter, TopicMatches
from odradek.coordinator.group.consumer.state import JOINING_EPOCH
from odradek.coordinator.group.consumer.topics import TopicsView, topics_view
from odradek.coordinator.group.machine import MAX_RECORD_BYTES
from odradek.coordinator.group.outcome import Outcome
from odradek.coordinator.group.records import OFFSETS_TOPIC, CoordinatorRecord, TransactionEndRecord
from odradek.coordinator.group.runtime import FromMember, MakeLog, Operation, Shard
from odradek.coordinator.service import CreateTopic, ShardHost, StateTopic, answer_code
from odradek.log.producer_state import NOT_REQUIRED, ProducerState, Verification
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.features import GROUP_VERSION
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult
from odradek.protocol.messages.describe_groups_response import DescribedGroup
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.list_groups_response import ListedGroup
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from odradek.protocol.messages.offset_delete_response import OffsetDeleteResponse, OffsetDeleteResponseTopic
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup, OffsetFetchResponseTopics
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.statemachine.machine import Result

_log = get_logger("coordinator.group")

T = TypeVar("T")

# Of a request with many groups: the number of shard lookups, and of groups served, per iteration of the loop.
FOUND_PER_TURN = 1000
SERVED_PER_TURN = 100
# How many members leave, or offsets are deleted, in one step of a group.
ENTRIES_PER_STEP = 1000
STEP_LIMIT = 2 * ENTRIES_PER_STEP


class RandomBits(Protocol):
    """The part of `random.Random` that member ids need."""

    def getrandbits(self, k: int, /) -> int: ...


class GroupCoordinator(ShardHost[Shard]):
    """Finds the shard of each group, and builds responses from its machine's decisions."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        node_id: int,
        clock: Clock,
        random: RandomBits,
        make_log: MakeLog,
        image: Callable[[], MetadataImage],
        create_topic: CreateTopic,
        run_blocking: OffLoop,
        consumer_config: ConsumerGroupConfig | None = None,
        producers_of: Callable[[int], ProducerState | None] = lambda partition_id: None,
        max_record_bytes: Callable[[int], int] = lambda partition_id: MAX_RECORD_BYTES,
    ) -> None:
        """
        Args:
            make_log: returns the machine log of (partition id, leader epoch) of __consumer_offsets.
            max_record_bytes: the largest record that a partition of __consumer_offsets accepts.
            producers_of: the producer state of a partition of __consumer_offsets.
            image: returns the present metadata image of this broker.
            run_blocking: runs long work off the loop.
            create_topic: creates __consumer_offsets when a client looks up the first coordinator.
        """
        self.config = config
        self.consumer_config = consumer_config or ConsumerGroupConfig()
        self._random = random
        self._current_image = image
        self._topics = TopicsView()
        self._matches = TopicMatches()
        self._off_loop = run_blocking
        self._turn_to_match = asyncio.Lock()
        self._topics_of: tuple[object, object] | None = None
        self._producers_of = producers_of
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        count, factor = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        super().__init__(
            StateTopic(OFFSETS_TOPIC, count, factor, "offsets.topic.replication.factor", configs),
            node_id=node_id,
            image=image,
            create_topic=create_topic,
            make_shard=lambda partition_id, epoch: Shard(
                config,
                clock,
                partition_id,
                epoch,
                make_log,
                consumer_config=self.consumer_config,
                topics=self._present_topics,
                group_configs=self._group_configs,
                assignment_interval_ms=self._assignment_interval_ms,
                max_record_bytes=lambda: max_record_bytes(partition_id),
                matches=self._matches,
                election_reason=self.election_reason(partition_id, epoch),
            ),
        )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the leadership of __consumer_offsets, and remove offsets of deleted topics."""
        super().on_metadata(delta, image)
        deleted = {each.name: topic_id for topic_id, each in delta.deleted_topics.items()}
        if deleted:
            for shard in self.shards.values():
                shard.on_topics_deleted(deleted)

    def _present_topics(self) -> TopicsView:
        """The cluster's topics; the same object until topics or brokers change."""
        image = self._current_image()
        tables = (image.topics_by_name, image.brokers)
        if self._topics_of is None or self._topics_of[0] is not tables[0] or self._topics_of[1] is not tables[1]:
            self._topics = topics_view(image, self._topics.version + 1)
            self._topics_of = tables
        return self._topics

    def _group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._current_image().config(ResourceType.GROUP, group_id)

    def _assignment_interval_ms(self, group_id: str) -> int:
        return self.consumer_config.assignment_interval_of(self._group_configs(group_id))

    def _new_id(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    # ---- members

    async def join_group(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """JoinGroup 0-9; returns when the rebalance is complete, which takes up to the rebalance timeout."""
        try:
            _check_group_id(request.group_id)
            timeout_ms = request.session_timeout_ms
            if not self.config.min_session_timeout_ms <= timeout_ms <= self.config.max_session_timeout_ms:
                raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT, f"{timeout_ms} ms")
            shard = self.shard(request.group_id)
            if shard.machine.consumers.find(request.group_id) is not None:
                await shard.run(lambda: shard.machine.make_room_for_classic(request.group_id))

            def operation(ticket: int) -> Result[CoordinatorRecord, Outcome[JoinGroupResponse]]:
                named = Caller(caller.client_id, caller.client_host, caller.api_version, ticket, self._new_id())
                return shard.machine.join(request, named, shard.now())

            response = await shard.run_parked(operation)
            shard.record_refused(request, caller, ErrorCode(response.error_code))
            return response
        except ApiError as error:
            self._record_refused(request, caller, error)
            return JoinGroupResponse(error_code=answer_code(error), member_id=request.member_id, protocol_name=None)

    async def sync_group(self, request: SyncGroupRequest, caller: Caller) -> SyncGroupResponse:
        """SyncGroup 0-5; returns when the leader's assignment is stored."""
        try:
            _check_group_id(request.group_id)
            shard = self.shard(request.group_id)

            def operation(ticket: int) -> Result[CoordinatorRecord, Outcome[SyncGroupResponse]]:
                named = Caller(caller.client_id, caller.client_host, caller.api_version, ticket)
                return shard.machine.sync(request, named, shard.now())

            return await shard.run_parked(operation)
        except ApiError as error:
            self._record_refused(request, caller, error)
            return SyncGroupResponse(error_code=answer_code(error))

    async def heartbeat(self, request: HeartbeatRequest, caller: Caller | None = None) -> HeartbeatResponse:
        """Heartbeat 0-4; while the shard loads every heartbeat succeeds."""
        try:
            _check_group_id(request.group_id)
            shard = self.shard(request.group_id)
            return await shard.run(lambda: shard.machine.classic_heartbeat(request, shard.now()))
        except ApiError as error:
            self._record_refused(request, caller, error)
            code = answer_code(error)
            loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else code)

    async def leave_group(self, request: LeaveGroupRequest, caller: Caller | None = None) -> LeaveGroupResponse:
        """LeaveGroup 0-5; `request.members` has the leaving members in every version.

        A thousand members leave in one step, with one rebalance; other requests are served before the next thousand.
        """
        answer = LeaveGroupResponse()
        try:
            _check_group_id(request.group_id)
            for members in in_slices(request.members, ENTRIES_PER_STEP):
                shard = self.shard(request.group_id)
                some = LeaveGroupRequest(group_id=request.group_id, members=list(members))
                response = await shard.run_parked(partial(self._leave, shard, some))
                shard.record_refused_leaves(request.group_id, response, caller)
                answer.members += response.members
        except ApiError as error:
            return LeaveGroupResponse(error_code=answer_code(error))
        return answer

    def _leave(
        self, shard: Shard, request: LeaveGroupRequest, ticket: int
    ) -> Result[CoordinatorRecord, Outcome[LeaveGroupResponse]]:
        return shard.machine.leave(request, shard.now())

    # ---- consumer groups

    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, may_describe: TopicFilter = EVERY_TOPIC
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat 0-1; `may_describe` filters the topics that a regular expression can match."""
        try:
            if not self._serves_consumers():
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the consumer protocol is not enabled")
            check_request(request, caller.api_version)
            if request.member_epoch >= JOINING_EPOCH:
                await self._match_topics(self.shard(request.group_id).machine.heartbeats.regex_of(request))
            shard = self.shard(request.group_id)
            named = HeartbeatCaller(
                caller.client_id, caller.client_host, caller.api_version, self._new_id(), may_describe
            )
            if request.member_epoch > JOINING_EPOCH:
                return await self._run(shard, lambda: shard.machine.consumer_heartbeat(request, named, shard.now()))
            # The request may change the group's protocol, which answers parked requests of the other one.
            return await shard.run_parked(lambda _: shard.machine.consumer_heartbeat(request, named, shard.now()))
        except ApiError as error:
            self._record_refused(request, caller, error)
            return ConsumerGroupHeartbeatResponse(error_code=answer_code(error), error_message=error.message or None)

    async def _match_topics(self, regex: str | None) -> None:
        """Compute the matches of an expression before the heartbeat. Raises ApiError."""
        matches = self._matches
        if regex is None or not matches.is_long(regex, self._present_topics()):
            return
        # One at a time: expressions may occupy one of the threads, not all.
        async with self._turn_to_match:
            view = self._present_topics()
            if matches.is_long(regex, view):
                matches.store(regex, await self._off_loop(matches.begin(regex, view)))

    async def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[DescribedConsumerGroup]:
        """ConsumerGroupDescribe 0-1, in the order requested."""

        async def describe(shard: Shard, ids: list[str]) -> list[DescribedConsumerGroup]:
            return await self._run(shard, lambda: shard.machine.describe_consumers(ids))

        def refuse(group_id: str, error: ApiError) -> DescribedConsumerGroup:
            return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)

        return await self._by_shard(group_ids, describe, refuse)

    def _serves_consumers(self) -> bool:
        level = self._current_image().features.get(GROUP_VERSION, 0)
        return level >= 1 and "consumer" in self.consumer_config.rebalance_protocols

    # ---- offsets

    async def offset_commit(
        self, request: OffsetCommitRequest, api_version: int, caller: Caller | None = None
    ) -> OffsetCommitResponse:
        """OffsetCommit 2-10, for topics and partitions that exist. Raises ApiError for the whole request."""
        shard = self.shard(request.group_id)
        try:
            return await self._run(shard, lambda: shard.machine.commits.commit(request, api_version, shard.now()))
        except ApiError as error:
            self._record_refused(request, caller, error)
            raise

    async def txn_offset_commit(
        self,
        request: TxnOffsetCommitRequest,
        verify: Callable[[int], Awaitable[ErrorCode]] | None,
        caller: Caller | None = None,
        *,
        supports_epoch_bump: bool = False,
    ) -> TxnOffsetCommitResponse:
        """TxnOffsetCommit 0-5, for topics and partitions that exist.

        Args:
            verify: asks the coordinator whether the producer's transaction includes a partition of __consumer_offsets,
                if it is not open there; None if transactions are not verified.
            supports_epoch_bump: as `ProducerState.begin_verification` takes it.
        Raises:
            ApiError: for the whole request.
        """
        _check_group_id(request.group_id)
        shard = self.shard(request.group_id)
        producers = self._producers(shard.partition_id)
        verification: Verification | None = NOT_REQUIRED
        if verify is not None:
            verification = None
            shard.check_active()
            if shard.machine.offsets.open_epoch(request.producer_id) != request.producer_epoch:
                verification = producers.begin_verification(
                    request.producer_id, request.producer_epoch, supports_epoch_bump=supports_epoch_bump
                )
                code = await verify(shard.partition_id)
                producers.end_verification(request.producer_id, verification, is_confirmed=not code)
                if code:
                    error = ApiError(code, f"producer {request.producer_id} has no such transaction open")
                    self._record_refused(request, caller, error)
                    raise error
        try:
            return await self._run(
                shard,
                lambda: shard.machine.commits.commit_in_transaction(request, producers, verification, shard.now()),
            )
        except ApiError as error:
            self._record_refused(request, caller, error)
            raise

    async def end_transaction(self, partition_id: int, end: TransactionEndRecord, transaction_version: int) -> None:
        """Write a marker to a partition of __consumer_offsets, unless it is written already; returns when committed.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER (COORDINATOR_LOAD_IN_PROGRESS while the partition is loading),
                INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        shard = self.shards.get(partition_id)
        if shard is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{OFFSETS_TOPIC}-{partition_id} is led elsewhere")
        shard.check_active()
        producers = self._producers(partition_id)
        await self._run(shard, lambda: shard.machine.commits.end_transaction(end, transaction_version, producers))

    def _producers(self, partition_id: int) -> ProducerState:
        producers = self._producers_of(partition_id)
        if producers is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC}-{partition_id} is not here")
        return producers

    async def offset_fetch(self, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """One group of an OffsetFetch 1-10; errors are in the group's response.

        Thousands of partitions are read in several steps, with other requests served in between.
        """
        try:
            if group.topics is not None and sum(1 + len(each.partition_indexes) for each in group.topics) > STEP_LIMIT:
                return await self._fetch_in_steps(group, group.topics, require_stable)
            return await self._fetch_offsets(group, require_stable)
        except ApiError as error:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)

    async def _fetch_offsets(self, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        shard = self.shard(group.group_id)
        return await self._run(shard, lambda: shard.machine.commits.fetch(group, require_stable))

    async def _fetch_in_steps(
        self, group: OffsetFetchRequestGroup, topics: list[OffsetFetchRequestTopics], require_stable: bool
    ) -> OffsetFetchResponseGroup:
        answers = [OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id) for topic in topics]
        for step in _steps_of(topics):
            part = [
                OffsetFetchRequestTopics(
                    name=topics[place].name, topic_id=topics[place].topic_id, partition_indexes=indexes
                )
                for place, indexes in step
            ]
            found = await self._fetch_offsets(replace(group, topics=part), require_stable)
            for (place, _), topic in zip(step, found.topics, strict=True):
                answers[place].partitions += topic.partitions
            await asyncio.sleep(0)
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=answers)

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete 0, for topics and partitions that exist. Raises ApiError for the whole request.

        A thousand are deleted in one step, more in several, with other requests served in between: a client that gets
        an error after the first step repeats the whole request.
        """
        _check_group_id(request.group_id)
        answer = OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name=topic.name) for topic in request.topics])
        asked = [
            (topic, each) for topic in zip(request.topics, answer.topics, strict=True) for each in topic[0].partitions
        ]
        for entries in in_slices(asked, ENTRIES_PER_STEP):
            shard = self.shard(request.group_id)
            topics = [OffsetDeleteRequestTopic(name=topic.name, partitions=[each]) for (topic, _), each in entries]
            some = OffsetDeleteRequest(group_id=request.group_id, topics=topics)
            deleted = await self._run(shard, partial(shard.machine.commits.delete_offsets, some))
            for ((_, topic), _), done in zip(entries, deleted.topics, strict=True):
                topic.partitions += done.partitions
        return answer

    # ---- descriptions, deletion and lists

    async def describe_groups(self, group_ids: Sequence[str], api_version: int) -> list[DescribedGroup]:
        """DescribeGroups 0-6, in the order requested."""

        async def describe(shard: Shard, ids: list[str]) -> list[DescribedGroup]:
            return await self._run(shard, lambda: shard.machine.describe_classics(ids, api_version))

        def refuse(group_id: str, error: ApiError) -> DescribedGroup:
            return DescribedGroup(group_id=group_id, error_code=error.code)

        return await self._by_shard(group_ids, describe, refuse)

    async def delete_groups(self, group_ids: Sequence[str]) -> list[DeletableGroupResult]:
        """DeleteGroups 0-3, each group once."""

        async def delete(shard: Shard, ids: list[str]) -> list[DeletableGroupResult]:
            return await self._run(shard, lambda: shard.machine.commits.delete_groups(ids))

        def refuse(group_id: str, error: ApiError) -> DeletableGroupResult:
            return DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=error.message or None)

        return await self._by_shard(list(dict.fromkeys(group_ids)), delete, refuse)

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
        """ListGroups 0-5: the groups of all shards here. Raises ApiError(COORDINATOR_LOAD_IN_PROGRESS)."""
        listed: list[ListedGroup] = []
        for _, shard in sorted(self.shards.items()):
            try:
                found: list[ListedGroup] = await shard.run(partial(shard.machine.list_groups, states, types))
                listed += found
            except ApiError as error:
                if answer_code(error) is not ErrorCode.NOT_COORDINATOR:
                    raise ApiError(answer_code(error), error.message) from error
        return listed

    async def timelines(self, group_ids: Sequence[str]) -> list[dict[str, Any]]:
        """The timelines of groups from this broker's journals; unknown groups are omitted."""
        found: list[dict[str, Any]] = []
        turns = Turns(SERVED_PER_TURN)
        for group_id in dict.fromkeys(group_ids):
            partition_id = self.partition_for(group_id)
            shard = None if partition_id is None else self.shards.get(partition_id)
            timeline = None if shard is None else shard.machine.journal.timeline(group_id, shard.now())
            if timeline is not None:
                found.append(timeline)
            await turns.spend()
        return found

    def _record_refused(self, request: FromMember, caller: Caller | None, error: ApiError) -> None:
        try:
            shard = self.shard(request.group_id)
        except ApiError:
            return
        shard.record_refused(request, caller, error.code, error.message)

    async def _run(self, shard: Shard, operation: Operation[T]) -> T:
        try:
            return await shard.run(operation)
        except OdradekError as error:
            raise ApiError(answer_code(error), str(error)) from error

    async def _by_shard(
        self,
        group_ids: Sequence[str],
        serve: Callable[[Shard, list[str]], Awaitable[list[T]]],
        refuse: Callable[[str, ApiError], T],
    ) -> list[T]:
        """Pass each shard its groups, some at a time, and return the answers in the order of the request.

        One request may have very many groups: other requests are served between two slices.
        """
        ids_of: dict[Shard, dict[str, None]] = {}
        answers: dict[str, T] = {}
        turns = Turns(FOUND_PER_TURN)
        for group_id in group_ids:
            try:
                ids_of.setdefault(self.shard(group_id), {})[group_id] = None
            except ApiError as error:
                answers[group_id] = refuse(group_id, error)
            await turns.spend()
        for shard, wanted in ids_of.items():
            for ids in in_slices(list(wanted), SERVED_PER_TURN):
                try:
                    answers.update(zip(ids, await serve(shard, list(ids)), strict=True))
                except ApiError as error:
                    answers.update({group_id: refuse(group_id, error) for group_id in ids})
        return [answers[group_id] for group_id in group_ids]


def _steps_of(topics: Sequence[OffsetFetchRequestTopics]) -> Iterator[list[tuple[int, list[int]]]]:
    """Parts of a request of about ENTRIES_PER_STEP partitions: (place of the topic, some of its partitions)."""
    step: list[tuple[int, list[int]]] = []
    left = ENTRIES_PER_STEP
    for place, topic in enumerate(topics):
        for indexes in in_slices(topic.partition_indexes, ENTRIES_PER_STEP):
            step.append((place, list(indexes)))
            left -= 1 + len(indexes)
            if left <= 0:
                yield step
                step, left = [], ENTRIES_PER_STEP
    if step:
        yield step


def _check_group_id(group_id: str | None) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
