"""The records of consumer groups in __consumer_offsets, as Kafka writes them, and how they read as state.

Key types: 3 group epoch, 5 member metadata, 6 target assignment epoch, 7 a member's target assignment, 8 a member's
current assignment, 16 a resolved regular expression; 4 (partition metadata) is of Kafka before 4.1 and only removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from odradek.coordinator.group.consumer.state import (
    INITIAL_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    ClassicMetadata,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
    ResolvedRegex,
    by_topic,
)
from odradek.protocol.declare import Message
from odradek.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from odradek.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.messages.consumer_group_current_member_assignment_value import (
    TopicPartitions as CurrentTopicPartitions,
)
from odradek.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from odradek.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from odradek.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from odradek.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from odradek.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from odradek.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from odradek.protocol.messages.consumer_group_target_assignment_member_value import (
    TopicPartition as TargetTopicPartitions,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.record_types import CoordinatorKind, decode_coordinator_key, decode_coordinator_value

TYPE_IDS = frozenset({3, 4, 5, 6, 7, 8, 16})
VALUE_VERSION = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """One record; a `value` of None is a tombstone of the key."""

    key: Any
    value: Any | None

    @property
    def group_id(self) -> str:
        group_id: str = self.key.group_id
        return group_id


def decode_consumer_group_record(type_id: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """
    Raises:
        ProtocolError: the bytes do not parse.
    """
    body: Message | None = None
    if value is not None:
        body = decode_coordinator_value(CoordinatorKind.GROUP, type_id, value)[0]
    return ConsumerGroupRecord(decode_coordinator_key(CoordinatorKind.GROUP, key), body)


# ---- making records


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member_id: str, member: MemberMetadata) -> ConsumerGroupRecord:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_stored_classic(member.classic),
    )
    return ConsumerGroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def _stored_classic(classic: ClassicMetadata | None) -> ClassicMemberMetadata | None:
    if classic is None:
        return None
    protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols]
    return ClassicMemberMetadata(session_timeout_ms=classic.session_timeout_ms, supported_protocols=protocols)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> ConsumerGroupRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=ids) for topic_id, ids in by_topic(partitions).items()
        ]
    )
    return ConsumerGroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> ConsumerGroupRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> ConsumerGroupRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=int(current.state),
        assigned_partitions=_stored(current.assigned, current.epochs),
        partitions_pending_revocation=_stored(current.pending_revocation, current.epochs),
    )
    return ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> ConsumerGroupRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=list(resolved.topic_names), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return ConsumerGroupRecord(key, value)


def regex_tombstone(group_id: str, regex: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    """The tombstones of one member, its current assignment first."""
    keys = (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return [ConsumerGroupRecord(key, None) for key in keys]


def group_tombstones(group: ConsumerGroup) -> list[ConsumerGroupRecord]:
    """The tombstones of a group, members first and the group epoch last."""
    group_id = group.group_id
    records = [record for member_id in group.members for record in member_tombstones(group_id, member_id)]
    records += [regex_tombstone(group_id, regex) for regex in group.regexes]
    records.append(ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records.append(ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records


def _stored(partitions: Partitions, epochs: Mapping[tuple[UUID, int], int]) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id, partitions=ids, assignment_epochs=[epochs[topic_id, each] for each in ids]
        )
        for topic_id, ids in by_topic(partitions).items()
    ]


# ---- reading records


def apply_record(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    """Apply a record to the group; a value of None removes the key's state."""
    _APPLY[type(record.key)](group, record.key, record.value)


def _apply_epoch(group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
    before = group.group_epoch.value
    assert value is None or value.epoch >= before, f"{group.group_id}: epoch {before} -> {value.epoch}"
    group.group_epoch.value = INITIAL_EPOCH if value is None else value.epoch
    group.metadata_hash.value = 0 if value is None else value.metadata_hash


def _apply_member(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.drop_member(key.member_id)
    else:
        group.put_member(key.member_id, _member(value))


def _apply_target_epoch(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    before = group.assignment_epoch.value
    assert value is None or value.assignment_epoch >= before, f"{group.group_id}: {before} -> {value}"
    group.assignment_epoch.value = INITIAL_EPOCH if value is None else value.assignment_epoch
    group.assignment_timestamp_ms.value = 0 if value is None else value.assignment_timestamp


def _apply_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = _partitions(value.topic_partitions)


def _apply_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is None:
        group.drop_current(key.member_id)
    else:
        group.put_current(key.member_id, _current(value))


def _apply_regex(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    if value is None:
        group.regexes.pop(key.regular_expression, None)
    else:
        resolved = ResolvedRegex(tuple(value.topics), value.version, value.timestamp)
        group.regexes[key.regular_expression] = resolved


def _apply_nothing(group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: object) -> None:
    """Ignored: Kafka up to 4.0 stored partition counts of topics."""


_APPLY: Mapping[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _apply_epoch,
    ConsumerGroupMemberMetadataKey: _apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: _apply_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: _apply_current,
    ConsumerGroupRegularExpressionKey: _apply_regex,
    ConsumerGroupPartitionMetadataKey: _apply_nothing,
}


def _member(value: ConsumerGroupMemberMetadataValue) -> MemberMetadata:
    return MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None if value.classic_member_metadata is None else _classic(value.classic_member_metadata),
    )


def _classic(stored: ClassicMemberMetadata) -> ClassicMetadata:
    protocols = tuple((each.name, bytes(each.metadata)) for each in stored.supported_protocols)
    return ClassicMetadata(stored.session_timeout_ms, protocols)


def _current(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    known = value.state in MemberState.__members__.values()
    # A log of Kafka before 4.3 has no epochs of the partitions; the present epoch is the latest possible.
    away = value.member_epoch == LEAVING_FOR_A_WHILE_EPOCH
    epoch = value.previous_member_epoch if away else value.member_epoch
    topics = [*value.assigned_partitions, *value.partitions_pending_revocation]
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNRELEASED_PARTITIONS,
        assigned=_partitions(value.assigned_partitions),
        pending_revocation=_partitions(value.partitions_pending_revocation),
        epochs={
            (topic.topic_id, each): since
            for topic in topics
            for each, since in zip(topic.partitions, _epochs_of(topic, epoch), strict=True)
        },
    )


def _epochs_of(topic: CurrentTopicPartitions, epoch: int) -> list[int]:
    stored, count = topic.assignment_epochs, len(topic.partitions)
    return stored if stored is not None and len(stored) == count else [epoch] * count


def _partitions(topics: list[Any]) -> Partitions:
    pairs: list[tuple[UUID, int]] = [(topic.topic_id, each) for topic in topics for each in topic.partitions]
    return frozenset(pairs)
