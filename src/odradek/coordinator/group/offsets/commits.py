"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups and expiry: validate, build records, return.

Source: Kafka OffsetMetadataManager; KIP-211 (retention starts when a group becomes empty), KIP-496 (OffsetDelete).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT64_MAX
from odradek.coordinator.batches import RECORD_OVERHEAD_BYTES
from odradek.coordinator.group.classic.group import ClassicGroup, Moment
from odradek.coordinator.group.classic.rebalance import Rebalance, Records
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.access import MEMBER_EPOCH_VERSION, check_commit, check_fetch
from odradek.coordinator.group.consumer.records import group_tombstones
from odradek.coordinator.group.consumer.registry import ConsumerGroups
from odradek.coordinator.group.consumer.state import ConsumerGroup
from odradek.coordinator.group.offsets.store import CommittedOffset, OffsetStore
from odradek.coordinator.group.outcome import Outcome
from odradek.coordinator.group.records import (
    CoordinatorRecord,
    OffsetRecord,
    TransactionEndRecord,
    group_tombstone,
    offset_tombstone,
)
from odradek.coordinator.group.registry import GroupRegistry
from odradek.log.producer_state import ProducerState, Verification
from odradek.protocol.messages.delete_groups_response import DeletableGroupResult
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.statemachine.machine import Result

# From this version on a commit to an unknown group gets this error; older clients know only ILLEGAL_GENERATION.
GROUP_ID_NOT_FOUND_VERSION = 9
NO_OFFSET = -1
# The minimum size of key and value of a commit, with empty names and metadata.
LEAST_COMMIT_BYTES = 34
MAX_TIMESTAMP_MS = INT64_MAX
NIL_UUID = UUID(int=0)


class Commits:
    """The requests about offsets, for one shard."""

    def __init__(
        self,
        config: GroupConfig,
        groups: GroupRegistry,
        consumers: ConsumerGroups,
        offsets: OffsetStore,
        rebalance: Rebalance,
        max_record_bytes: Callable[[], int],
    ) -> None:
        """
        Args:
            max_record_bytes: the largest batch that the offsets topic accepts; one request writes one batch.
        """
        self._config = config
        self._max_record_bytes = max_record_bytes
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._rebalance = rebalance

    # ---- OffsetCommit

    def commit(
        self, request: OffsetCommitRequest, api_version: int, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[OffsetCommitResponse]]:
        """Store offsets for a member of the present generation, or for a group without members.

        Raises:
            ApiError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
                STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND (version 9 on), RECORD_LIST_TOO_LARGE. Per partition:
                OFFSET_METADATA_TOO_LARGE.
        """
        self._check_committer(request, api_version, now)
        kept_ms = request.retention_time_ms
        expire_ms = -1 if kept_ms == -1 else min(now.wall_ms + kept_ms, MAX_TIMESTAMP_MS)
        most = self._most_records(request)
        records: Records = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            for partition in topic.partitions:
                error = self._check_metadata(partition.committed_metadata)
                if not error:
                    _check_count(records, most)
                    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                    records.append(OffsetRecord(key, _value(partition, topic.topic_id, now.wall_ms, expire_ms)))
                answer.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
        return Result(records, Outcome(response))

    def _check_committer(self, request: OffsetCommitRequest, api_version: int, now: Moment) -> None:
        """Check that the request may commit for its group; a commit of a classic member extends its session."""
        epoch = request.generation_id_or_member_epoch
        consumers = self._consumers.find(request.group_id)
        if consumers is not None:
            check_commit(consumers, request.member_id, epoch, api_version, _partitions(request))
            return
        group = self._groups.find(request.group_id)
        if group is None:
            if epoch >= 0:
                known = api_version >= GROUP_ID_NOT_FOUND_VERSION
                code = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
                raise ApiError(code, f"Group {request.group_id} not found.")
            return
        self._check_commit(group, request)
        member = group.members.get(request.member_id)
        if member is not None:
            self._rebalance.renew_session(group, member, now)

    def _most_records(self, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> int:
        """The number of commits above which no request fits a batch."""
        names = len(request.group_id) + min((len(topic.name) for topic in request.topics), default=0)
        return self._max_record_bytes() // (RECORD_OVERHEAD_BYTES + LEAST_COMMIT_BYTES + names)

    def _check_metadata(self, metadata: str | None) -> ErrorCode:
        too_large = len(metadata or "") > self._config.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE

    # ---- TxnOffsetCommit

    def commit_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        producers: ProducerState,
        verification: Verification | None,
        now: Moment,
    ) -> Result[CoordinatorRecord, Outcome[TxnOffsetCommitResponse]]:
        """Store offsets that take effect when the producer's transaction is committed.

        Args:
            producers: the producer state of the group's partition.
            verification: of the transaction by its coordinator; None if it is open in this partition.
        Raises:
            ApiError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INVALID_PRODUCER_EPOCH,
                INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE. Per partition: OFFSET_METADATA_TOO_LARGE.
        """
        producer_id, epoch = request.producer_id, request.producer_epoch
        self._check_transactional_committer(request, now)
        known = producers.producers.get(producer_id)
        if known is not None and epoch < known.producer_epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} is at {known.producer_epoch}")
        verified = producers.is_verified(producer_id, epoch, verification)
        if self._offsets.open_epoch(producer_id) != epoch and not verified:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {producer_id} is not open here")
        most = self._most_records(request)
        records: Records = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            answer = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            for partition in topic.partitions:
                error = self._check_metadata(partition.committed_metadata)
                if not error:
                    _check_count(records, most)
                    key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=partition.partition_index)
                    value = _value(partition, topic.topic_id, now.wall_ms, -1)
                    records.append(OffsetRecord(key, value, producer_id, epoch))
                answer.partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
        return Result(records, Outcome(response))

    def _check_transactional_committer(self, request: TxnOffsetCommitRequest, now: Moment) -> None:
        """Check the member of a transactional commit, as for other commits with two exceptions.

        Producers of older clients do not send their member (KIP-447), and a commit is allowed during a rebalance: the
        records that it covers are already in its transaction.
        """
        epoch = request.generation_id_or_member_epoch
        consumers = self._consumers.find(request.group_id)
        if consumers is not None:
            _check_transactional_member(consumers, request, epoch)
            return
        group = self._groups.find(request.group_id)
        if group is None:
            if epoch >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"Group {request.group_id} not found.")
            return
        if epoch < 0 and group.is_in(GroupState.EMPTY):
            return
        if epoch >= 0 or _names_member(request):
            _check_generation(group, request)
        member = group.members.get(request.member_id)
        if member is not None:
            self._rebalance.renew_session(group, member, now)

    def end_transaction(
        self, end: TransactionEndRecord, transaction_version: int, producers: ProducerState
    ) -> Result[CoordinatorRecord, Outcome[bool]]:
        """Write a marker, unless it is written already: pending offsets take effect, or are dropped.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producers.clear_verification(end.producer_id, end.producer_epoch, transaction_version)
        # Commits of this iteration of the loop are in the state already, and not yet in the log.
        open_epoch = self._offsets.open_epoch(end.producer_id)
        if open_epoch is not None and (
            end.producer_epoch < open_epoch or (end.producer_epoch == open_epoch and transaction_version >= 2)
        ):
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"a marker of epoch {end.producer_epoch} is stale")
        due = producers.must_write_marker(
            end.producer_id, end.producer_epoch, end.coordinator_epoch, transaction_version
        )
        must = due or open_epoch is not None
        return Result([end] if must else [], Outcome(must))

    def _check_commit(self, group: ClassicGroup, request: OffsetCommitRequest) -> None:
        generation_id = request.generation_id_or_member_epoch
        if generation_id < 0 and group.is_in(GroupState.EMPTY):
            return
        if generation_id >= 0 or _names_member(request):
            _check_generation(group, request)
        else:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members: commit as one of them")
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            # Its generation is right, but whether it keeps the partition is not yet decided.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "commit after the rebalance")

    # ---- OffsetFetch

    def fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool
    ) -> Result[CoordinatorRecord, Outcome[OffsetFetchResponseGroup]]:
        """The committed offsets of some partitions (-1 if there is none), or of all if `topics` is None.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH if the request names a member of a consumer group.
        """
        group_id = request.group_id
        consumers = self._consumers.find(group_id)
        if consumers is not None:
            check_fetch(consumers, request.member_id, request.member_epoch)
        response = OffsetFetchResponseGroup(group_id=group_id)
        if request.topics is None:
            topics: dict[str, OffsetFetchResponseTopics] = {}
            for (name, partition_id), committed in self._offsets.of_group(group_id).items():
                if name not in topics:
                    topics[name] = OffsetFetchResponseTopics(name=name)
                topics[name].partitions.append(self._fetched(group_id, name, partition_id, committed, require_stable))
            response.topics = list(topics.values())
            return Result([], Outcome(response))
        for topic in request.topics:
            answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answer)
            for partition_id in topic.partition_indexes:
                found = self._offsets.get(group_id, topic.name, partition_id)
                if found is not None and _other_topic(found.topic_id, topic.topic_id):
                    found = None  # committed for a deleted topic of the same name
                answer.partitions.append(self._fetched(group_id, topic.name, partition_id, found, require_stable))
        return Result([], Outcome(response))

    def _fetched(
        self, group_id: str, topic: str, partition_id: int, found: CommittedOffset | None, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        unstable = require_stable and self._offsets.is_unstable(group_id, topic, partition_id)
        if found is None or unstable:
            return OffsetFetchResponsePartitions(
                partition_index=partition_id,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=-1,
                metadata="",
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE,
            )
        return OffsetFetchResponsePartitions(
            partition_index=partition_id,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        )

    # ---- OffsetDelete, DeleteGroups

    def delete_offsets(self, request: OffsetDeleteRequest) -> Result[CoordinatorRecord, Outcome[OffsetDeleteResponse]]:
        """Remove offsets of topics that no member consumes.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP if the members' topics are unknown. Per partition:
                GROUP_SUBSCRIBED_TO_TOPIC.
        """
        group: ClassicGroup | ConsumerGroup | None = self._consumers.find(request.group_id)
        if group is None:
            group = self._groups.get(request.group_id)
            if not group.is_in(GroupState.EMPTY) and not group.uses_consumer_protocol:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        records: Records = []
        response = OffsetDeleteResponse()
        for topic in request.topics:
            answer = OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(answer)
            subscribed = group.is_subscribed_to(topic.name)
            for partition in topic.partitions:
                partition_id = partition.partition_index
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
                answer.partitions.append(OffsetDeleteResponsePartition(partition_index=partition_id, error_code=error))
                unstable = self._offsets.is_unstable(group.group_id, topic.name, partition_id)
                if not subscribed and (unstable or self._offsets.get(group.group_id, topic.name, partition_id)):
                    records.append(offset_tombstone(group.group_id, topic.name, partition_id))
        return Result(records, Outcome(response))

    def delete_groups(self, group_ids: Sequence[str]) -> Result[CoordinatorRecord, Outcome[list[DeletableGroupResult]]]:
        """Remove groups without members, with all their offsets. Per group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        records: Records = []
        results: list[DeletableGroupResult] = []
        for group_id in dict.fromkeys(group_ids):
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            try:
                consumers = self._consumers.find(group_id)
                is_empty = not consumers.members if consumers else self._groups.get(group_id).is_in(GroupState.EMPTY)
                if not is_empty:
                    raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"The group {group_id} is not empty.")
                records += self._removal(group_id)
            except ApiError as error:
                result.error_code, result.error_message = error.code, error.message
        return Result(records, Outcome(results), atomic=False)

    def _removal(self, group_id: str) -> Records:
        keys = dict.fromkeys([*self._offsets.of_group(group_id), *self._offsets.pending_of_group(group_id)])
        records: Records = [offset_tombstone(group_id, topic, partition_id) for topic, partition_id in keys]
        consumers = self._consumers.find(group_id)
        records += [group_tombstone(group_id)] if consumers is None else group_tombstones(consumers)
        return records

    def drop_topics(self, topics: Mapping[str, UUID]) -> Result[CoordinatorRecord, Outcome[None]]:
        """Remove the offsets of deleted topics (name -> id), but not those of recreated topics of the same name.

        Pending offsets of transactions go too, or the marker would commit them (KAFKA-16168).
        """
        gone: dict[tuple[str, str, int], None] = {}
        for group_id in self._offsets.group_ids():
            for (name, partition_id), committed in self._offsets.of_group(group_id).items():
                if name in topics and committed.topic_id in (NIL_UUID, topics[name]):
                    gone[group_id, name, partition_id] = None
        for key, held in self._offsets.pending():
            group_id, name, partition_id = key
            if name in topics and held.topic_id in (NIL_UUID, topics[name]):
                present = self._offsets.get(group_id, name, partition_id)
                # A commit for the recreated topic is later in the log, and stays whatever the marker says.
                if present is None or not _other_topic(present.topic_id, topics[name]):
                    gone[key] = None
        records: Records = [offset_tombstone(*key) for key in gone]
        return Result(records, Outcome(None), atomic=False)

    # ---- expiry

    def expire(self, now: Moment, limit: int) -> Result[CoordinatorRecord, Outcome[None]]:
        """Remove expired offsets, then groups that have nothing left; at most `limit` records."""
        records: Records = []
        for consumers in self._consumers:
            records += self._expired_of_consumers(consumers, now)
            if len(records) >= limit:
                break
        for group_id in self._groups.ids():
            if len(records) >= limit:
                break
            group = self._groups.find(group_id)
            if group is not None:
                records += self._expired_of(group, now)
        return Result(records[:limit], Outcome(None), atomic=False)

    def _expired_of(self, group: ClassicGroup, now: Moment) -> Records:
        """A group with a protocol keeps all offsets while it has members, unless its subscribed topics are known."""
        records: Records = []
        all_expired = True
        offsets = self._offsets.of_group(group.group_id)
        for (topic, partition_id), committed in offsets.items():
            pending = self._offsets.is_unstable(group.group_id, topic, partition_id)
            if pending or group.is_subscribed_to(topic) or not self._is_expired(group, committed, now.wall_ms):
                all_expired = False
            else:
                records.append(offset_tombstone(group.group_id, topic, partition_id))
        removable = group.is_in(GroupState.EMPTY) and not group.pending_joins
        if all_expired and removable and not self._offsets.pending_of_group(group.group_id):
            if group.group_id in self._groups.stored:
                records.append(group_tombstone(group.group_id))
            elif not offsets:
                self._groups.drop_if_unused(group)
        return records

    def _expired_of_consumers(self, group: ConsumerGroup, now: Moment) -> Records:
        """Tombstones of a consumer group's expired offsets of unsubscribed topics; of an unused group, too."""
        records: Records = []
        kept_ms = self._config.offsets_retention_minutes * 60_000
        offsets = self._offsets.of_group(group.group_id)
        for (topic, partition_id), committed in offsets.items():
            pending = self._offsets.is_unstable(group.group_id, topic, partition_id)
            expired = now.wall_ms - committed.commit_timestamp_ms >= kept_ms
            if committed.expire_timestamp_ms != -1:
                expired = now.wall_ms >= committed.expire_timestamp_ms
            if expired and not pending and not group.is_subscribed_to(topic):
                records.append(offset_tombstone(group.group_id, topic, partition_id))
        all_expired = len(records) == len(offsets) and not self._offsets.pending_of_group(group.group_id)
        if all_expired and not group.members:
            records += group_tombstones(group)
        return records

    def _is_expired(self, group: ClassicGroup, committed: CommittedOffset, now_ms: int) -> bool:
        since_ms = committed.commit_timestamp_ms
        if group.protocol_type is not None:
            if group.is_in(GroupState.EMPTY):
                # Retention begins when the last member has left, not at the last commit (KIP-211).
                since_ms = group.state_timestamp_ms if group.state_timestamp_ms is not None else since_ms
            elif not (group.is_in(GroupState.STABLE) and group.subscribed_topics is not None):
                return False
        if committed.expire_timestamp_ms != -1:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - since_ms >= self._config.offsets_retention_minutes * 60_000


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: UUID,
    now_ms: int,
    expire_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def _names_member(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> bool:
    return bool(request.member_id) or request.group_instance_id is not None


def _check_generation(group: ClassicGroup, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> None:
    """Check that the sender is a member of the present generation."""
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id_or_member_epoch != group.generation_id:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is at generation {group.generation_id}")


def _check_transactional_member(consumers: ConsumerGroup, request: TxnOffsetCommitRequest, epoch: int) -> None:
    if epoch == -1 and not _names_member(request):
        return
    try:
        check_commit(consumers, request.member_id, epoch, MEMBER_EPOCH_VERSION, _partitions(request))
    except ApiError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:  # producers do not know this error
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise


def _check_count(records: Records, most: int) -> None:
    """Refuse a hundred thousand commits before all are made into records, which would block the loop."""
    if len(records) >= most:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"more than {most} commits do not fit into one batch")


def _other_topic(stored: UUID, asked: UUID) -> bool:
    return stored != NIL_UUID and asked != NIL_UUID and stored != asked


def _partitions(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> Iterator[tuple[UUID, int]]:
    """(topic id, partition id) of a request's commits; the zero id is that of an unknown topic."""
    for topic in request.topics:
        yield from ((topic.topic_id, each.partition_index) for each in topic.partitions)
