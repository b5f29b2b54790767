"""The group coordinator of this broker: one shard for each partition of __consumer_offsets that it leads.

    request -> shard of the group -> runtime.run(machine operation) -> answer, or parked until somebody completes it

JoinGroup, SyncGroup and LeaveGroup run in tasks of their shard, not of the connection that asked: when a client goes
away in the middle, the others that its request concerned must still be answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.coordinator.consumer_group.config import ConsumerGroupConfig
from odradek.coordinator.consumer_group.heartbeats import HeartbeatCaller
from odradek.coordinator.consumer_group.state import JOINING_EPOCH
from odradek.coordinator.consumer_group.topics import TopicsView, topics_view
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.group import Completion, Moment
from odradek.coordinator.group.machine import GroupMachine
from odradek.coordinator.group.membership import Caller
from odradek.coordinator.group.outcome import Outcome, PendingWrite
from odradek.coordinator.group.queries import describe_groups
from odradek.coordinator.group.records import OFFSETS_TOPIC, CoordinatorRecord, TransactionEndRecord
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
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest
from odradek.protocol.messages.offset_delete_response import OffsetDeleteResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.statemachine.machine import Result
from odradek.statemachine.runtime import MachineLog, Runtime, State
from odradek.statemachine.timeline import Timeline

_log = get_logger("coordinator.group")

T = TypeVar("T")
Operation = Callable[[], Result[CoordinatorRecord, Outcome[T]]]
MakeLog = Callable[[int, int], MachineLog[CoordinatorRecord, Any]]


class RandomBits(Protocol):
    """The part of `random.Random` that member ids are made of."""

    def getrandbits(self, k: int, /) -> int: ...


class Shard:
    """One partition's machine during one reign, with the requests that are parked in it and the tasks that it owns."""

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        partition_id: int,
        leader_epoch: int,
        make_log: MakeLog,
        *,
        consumer_config: ConsumerGroupConfig,
        topics: Callable[[], TopicsView],
        group_configs: Callable[[str], Mapping[str, str]],
    ) -> None:
        self.partition_id = partition_id
        self.leader_epoch = leader_epoch
        self._clock = clock
        self._timeout_ms = config.offsets_commit_timeout_ms
        timeline = Timeline()
        self.machine = GroupMachine(
            config, timeline, consumer_config=consumer_config, topics=topics, group_configs=group_configs
        )
        self.runtime: Runtime[CoordinatorRecord] = Runtime(
            self.machine, make_log(partition_id, leader_epoch), timeline, on_failed=self._on_failed
        )
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._next_ticket = 0
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_ms = 0

    def now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def start(self) -> None:
        """Begin to load."""
        self.spawn(self.load())

    async def load(self) -> None:
        """Replay the partition, then give every member a fresh session. A log that cannot be read ends the reign."""
        try:
            count = await self.runtime.load()
        except OdradekError:
            return  # `_on_failed` has told why
        if self.runtime.active:
            level = _log.info if count else _log.debug
            level("groups loaded", partition=self.partition_id, records=count)
            await self._apply(lambda: self.machine.loaded(self.now()))

    def forget_topics(self, topics: Mapping[str, UUID]) -> None:
        """Remove the offsets of deleted topics, in the background; a shard that loads leaves them to expiry."""
        if self.runtime.active:
            self.spawn(self._apply(lambda: self.machine.commits.drop_topics(topics)))

    # ---- running operations

    def check_active(self) -> None:
        """Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        if not self.runtime.active:
            loading = self.runtime.state in (State.NEW, State.LOADING)
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation that answers at once and completes nobody else. Raises ApiError."""
        outcome = await self.runtime.run(operation, timeout_ms=self._timeout_ms)
        assert outcome.response is not None and not outcome.completions
        self._arm()
        return outcome.response

    async def run_parked(self, operation: Callable[[int], Result[CoordinatorRecord, Outcome[T]]]) -> T:
        """Run an operation in a task of the shard and wait for its answer, or for its ticket to be completed."""
        ticket = self._next_ticket
        self._next_ticket += 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        self.spawn(self._apply(lambda: operation(ticket), ticket))
        try:
            return await future
        finally:
            self._parked.pop(ticket, None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in a task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _apply(self, operation: Operation[Any], ticket: int | None = None) -> None:
        """Run an operation, answer its caller and all that it completes, and settle what it wrote."""
        decided: list[Outcome[Any]] = []

        def decide() -> Result[CoordinatorRecord, Outcome[Any]]:
            result = operation()
            decided.append(result.response)
            return result

        code = ErrorCode.NONE
        try:
            await self.runtime.run(decide, timeout_ms=self._timeout_ms)
        except OdradekError as error:
            code = answer_code(error)
            if ticket is not None and not (decided and decided[0].pending):
                self._fail(ticket, code, str(error))
        except Exception as error:
            _log.bug("a group operation failed", error, partition=self.partition_id)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if ticket is not None:
                self._fail(ticket, code, type(error).__name__)
        if not self.runtime.active:
            return
        for outcome in decided:
            self._release(outcome.completions)
            if ticket is not None and outcome.response is not None:
                self._release([Completion(ticket, outcome.response)])
            if outcome.pending is not None:
                self._settle(outcome.pending, code)
        self._arm()

    def _settle(self, pending: PendingWrite, code: ErrorCode) -> None:
        self.spawn(self._apply(lambda: self.machine.settle(pending, code, self.now())))

    def _release(self, completions: Sequence[Completion]) -> None:
        for ticket, response in completions:
            future = self._parked.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(response)

    def _fail(self, ticket: int, code: ErrorCode, message: str) -> None:
        future = self._parked.pop(ticket, None)
        if future is not None and not future.done():
            future.set_exception(ApiError(code, message))

    # ---- deadlines

    def _arm(self) -> None:
        """Wake up at the machine's next deadline; a deadline that moved away costs one idle wake-up."""
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or not self.runtime.active:
            return
        if self._wake_up is not None:
            if self._wake_up_ms <= deadline_ms:
                return
            self._wake_up.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._wake_up_ms = deadline_ms
        self._wake_up = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_wake_up)

    def _on_wake_up(self) -> None:
        self._wake_up = None
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._clock.monotonic_ms() and self.runtime.active:
            self.spawn(self._apply(lambda: self.machine.on_deadline(self.now())))
        else:
            self._arm()

    # ---- the end

    def _on_failed(self, error: BaseException) -> None:
        _log.error("a coordinator's reign ended", partition=self.partition_id, error=error)
        self._drop()

    def _drop(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        for ticket in list(self._parked):
            self._fail(ticket, ErrorCode.NOT_COORDINATOR, "the coordinator has moved")

    def resign(self) -> None:
        """Stop at once: everyone who waits looks for the coordinator again."""
        self.runtime.unload()
        self._drop()

    async def close(self) -> None:
        """Resign, and wait for the shard's tasks."""
        self.resign()
        await self.runtime.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class GroupCoordinator(ShardHost[Shard]):
    """Finds the shard of each group, and turns what its machine decides into answers."""

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
        consumer_config: ConsumerGroupConfig | None = None,
        producers_of: Callable[[int], ProducerState | None] = lambda partition_id: None,
    ) -> None:
        """
        Args:
            make_log: gives the machine log of (partition id, leader epoch) of __consumer_offsets.
            producers_of: what the log of a partition of __consumer_offsets remembers of producers.
            image: the cluster as this broker knows it at the time of the call.
            create_topic: how __consumer_offsets is made when the first group asks for its coordinator.
        """
        self.config = config
        self.consumer_config = consumer_config or ConsumerGroupConfig()
        self._random = random
        self._current_image = image
        self._topics = TopicsView()
        self._topics_of: tuple[object, object] | None = None
        self._producers_of = producers_of
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        count, factor = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        super().__init__(
            StateTopic(OFFSETS_TOPIC, count, factor, configs),
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
            ),
        )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the leadership of __consumer_offsets, and forget offsets of deleted topics."""
        super().on_metadata(delta, image)
        deleted = {each.name: topic_id for topic_id, each in delta.deleted_topics.items()}
        if deleted:
            for shard in self.shards.values():
                shard.forget_topics(deleted)

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

    def _new_id(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    # ---- members

    async def join_group(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """JoinGroup 0-9; returns when the rebalance is through, which takes up to the rebalance timeout."""
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

            return await shard.run_parked(operation)
        except ApiError as error:
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
            return SyncGroupResponse(error_code=answer_code(error))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat 0-4; while the shard loads every member is taken to be alive."""
        try:
            _check_group_id(request.group_id)
            shard = self.shard(request.group_id)
            return await shard.run(lambda: shard.machine.classic_heartbeat(request, shard.now()))
        except ApiError as error:
            code = answer_code(error)
            loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else code)

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """LeaveGroup 0-5; `request.members` holds the leaving members in every version."""
        try:
            _check_group_id(request.group_id)
            shard = self.shard(request.group_id)
            return await shard.run_parked(lambda _: shard.machine.leave(request, shard.now()))
        except ApiError as error:
            return LeaveGroupResponse(error_code=answer_code(error))

    # ---- consumer groups

    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat 0-1."""
        try:
            if not self._serves_consumers():
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the consumer protocol is not enabled")
            _check_group_id(request.group_id)
            shard = self.shard(request.group_id)
            named = HeartbeatCaller(caller.client_id, caller.client_host, caller.api_version, self._new_id())
            if request.member_epoch > JOINING_EPOCH:
                return await self._run(shard, lambda: shard.machine.consumer_heartbeat(request, named, shard.now()))
            # Whoever comes or goes may change the group's protocol: members of the other one that wait are answered.
            return await shard.run_parked(lambda _: shard.machine.consumer_heartbeat(request, named, shard.now()))
        except ApiError as error:
            return ConsumerGroupHeartbeatResponse(error_code=answer_code(error), error_message=error.message or None)

    async def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[DescribedConsumerGroup]:
        """ConsumerGroupDescribe 0-1, in the order asked for."""

        async def describe(shard: Shard, ids: list[str]) -> list[DescribedConsumerGroup]:
            return await self._run(shard, lambda: shard.machine.describe_consumers(ids))

        def refuse(group_id: str, error: ApiError) -> DescribedConsumerGroup:
            return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)

        return await self._by_shard(group_ids, describe, refuse)

    def _serves_consumers(self) -> bool:
        level = self._current_image().features.get(GROUP_VERSION, 0)
        return level >= 1 and "consumer" in self.consumer_config.rebalance_protocols

    # ---- offsets

    async def offset_commit(self, request: OffsetCommitRequest, api_version: int) -> OffsetCommitResponse:
        """OffsetCommit 2-10, for topics and partitions that exist. Raises ApiError for the whole request."""
        shard = self.shard(request.group_id)
        return await self._run(shard, lambda: shard.machine.commits.commit(request, api_version, shard.now()))

    async def txn_offset_commit(
        self,
        request: TxnOffsetCommitRequest,
        verify: Callable[[int], Awaitable[ErrorCode]] | None,
        *,
        is_bumped_by_ends: bool = False,
    ) -> TxnOffsetCommitResponse:
        """TxnOffsetCommit 0-5, for topics and partitions that exist.

        Args:
            verify: asks whether the producer's transaction includes a partition of __consumer_offsets, where it is not
                open there; None where transactions are not verified.
            is_bumped_by_ends: as `ProducerState.begin_verification` takes it.
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
                    request.producer_id, request.producer_epoch, is_bumped_by_ends=is_bumped_by_ends
                )
                code = await verify(shard.partition_id)
                if code:
                    raise ApiError(code, f"producer {request.producer_id} has no such transaction open")
        return await self._run(
            shard,
            lambda: shard.machine.commits.commit_in_transaction(request, producers, verification, shard.now()),
        )

    async def end_transaction(self, partition_id: int, end: TransactionEndRecord, transaction_version: int) -> None:
        """Write a marker into a partition of __consumer_offsets, unless it is there; returns when it is committed.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER (COORDINATOR_LOAD_IN_PROGRESS where the partition is still loaded),
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
        """One group of an OffsetFetch 1-10; an error is that group's."""
        try:
            shard = self.shard(group.group_id)
            return await self._run(shard, lambda: shard.machine.commits.fetch(group, require_stable))
        except ApiError as error:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)

    async def offset_delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete 0, for topics and partitions that exist. Raises ApiError for the whole request."""
        _check_group_id(request.group_id)
        shard = self.shard(request.group_id)
        return await self._run(shard, lambda: shard.machine.commits.delete_offsets(request))

    # ---- groups from outside

    async def describe_groups(self, group_ids: Sequence[str], api_version: int) -> list[DescribedGroup]:
        """DescribeGroups 0-6, in the order asked for."""

        async def describe(shard: Shard, ids: list[str]) -> list[DescribedGroup]:
            return await self._run(shard, lambda: describe_groups(shard.machine.groups, ids, api_version))

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
        """Ask each shard for its groups at once, and put the answers back into the order of the request."""
        ids_of: dict[Shard, list[str]] = {}
        answers: dict[str, T] = {}
        for group_id in group_ids:
            try:
                ids = ids_of.setdefault(self.shard(group_id), [])
                if group_id not in ids:
                    ids.append(group_id)
            except ApiError as error:
                answers[group_id] = refuse(group_id, error)
        for shard, ids in ids_of.items():
            try:
                answers.update(zip(ids, await serve(shard, ids), strict=True))
            except ApiError as error:
                answers.update({group_id: refuse(group_id, error) for group_id in ids})
        return [answers[group_id] for group_id in group_ids]


def _check_group_id(group_id: str | None) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
