"""The records of __consumer_offsets in Kafka's format, and the values that a machine replays.

A record's key is an int16 type (0 and 1: a committed offset, 2: a classic group's metadata, 3 to 8 and 16: a consumer
group) and a body, its value an int16 version and a body; a null value is a tombstone. The offsets decoder of
`kafka-dump-log` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.coordinator.batches import EncodedRecord
from odradek.coordinator.group.classic.group import ClassicGroup
from odradek.coordinator.group.consumer.records import (
    TYPE_IDS,
    VALUE_VERSION,
    ConsumerGroupRecord,
    decode_consumer_group_record,
)
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from odradek.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.record_types import (
    CoordinatorKind,
    coordinator_type_id,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from odradek.record.batch import NO_PRODUCER_ID, BatchHeader
from odradek.record.control import ControlType, control_key, marker_value

GROUP_METADATA_VALUE_VERSION = 3
# Only version 1 has its own expiry time; version 4 has the topic id. Kafka chooses the same versions.
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
OFFSET_COMMIT_VALUE_VERSION = 4

OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset; a tombstone if `value` is None. In a transaction it has the producer's id and epoch."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A generation of a classic group; a tombstone if `value` is None."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class TransactionEndRecord:
    """A marker: the producer's pending offsets take effect, or are dropped."""

    producer_id: int
    committed: bool
    producer_epoch: int = -1
    coordinator_epoch: int = -1


CoordinatorRecord = OffsetRecord | GroupRecord | TransactionEndRecord | ConsumerGroupRecord


def offset_tombstone(group_id: str, topic: str, partition_id: int) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition_id), None)


def group_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(GroupMetadataKey(group=group_id), None)


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupRecord:
    """The record of the group's present generation with these assignments by member id."""
    name = group.protocol_name
    assert name is not None or not group.members, f"group {group.group_id} has members and no protocol"
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name or ""),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return GroupRecord(GroupMetadataKey(group=group.group_id), value)


def encode_record(record: OffsetRecord | GroupRecord | ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value in Kafka's format; the value is None for a tombstone."""
    key, value = encode_coordinator_key(record.key), record.value
    if value is None:
        return key, None
    if isinstance(record, ConsumerGroupRecord):
        return key, encode_coordinator_value(value, VALUE_VERSION)
    if isinstance(value, GroupMetadataValue):
        return key, encode_coordinator_value(value, GROUP_METADATA_VALUE_VERSION)
    expires = value.expire_timestamp != -1
    version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VALUE_VERSION
    return key, encode_coordinator_value(value, version)


def decode_record(
    key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1
) -> OffsetRecord | GroupRecord | ConsumerGroupRecord | None:
    """Decode a record; None for kinds of other group protocols.

    Raises:
        ProtocolError: the bytes do not parse.
    """
    type_id = coordinator_type_id(key)
    if type_id in TYPE_IDS:
        return decode_consumer_group_record(type_id, key, value)
    if type_id not in (0, 1, 2):
        return None
    message = decode_coordinator_key(CoordinatorKind.GROUP, key)
    body = None if value is None else decode_coordinator_value(CoordinatorKind.GROUP, type_id, value)[0]
    if isinstance(message, LegacyOffsetCommitKey):
        message = OffsetCommitKey(group=message.group, topic=message.topic, partition=message.partition)
        # The values of this type have the versions of the present type.
        body = None if value is None else decode_coordinator_value(CoordinatorKind.GROUP, 1, value)[0]
    if isinstance(message, GroupMetadataKey):
        assert body is None or isinstance(body, GroupMetadataValue)
        return GroupRecord(message, body)
    assert isinstance(message, OffsetCommitKey)
    assert body is None or isinstance(body, OffsetCommitValue)
    return OffsetRecord(message, body, producer_id, producer_epoch)


class GroupRecordCodec:
    """The codec of __consumer_offsets, including markers."""

    topic = OFFSETS_TOPIC

    def encode(self, record: CoordinatorRecord) -> EncodedRecord:
        if isinstance(record, TransactionEndRecord):
            kind = ControlType.COMMIT if record.committed else ControlType.ABORT
            marker = marker_value(record.coordinator_epoch)
            return EncodedRecord(control_key(kind), marker, record.producer_id, record.producer_epoch, is_control=True)
        key, value = encode_record(record)
        if isinstance(record, OffsetRecord) and record.producer_id > NO_PRODUCER_ID:
            return EncodedRecord(key, value, record.producer_id, record.producer_epoch)
        return EncodedRecord(key, value)

    def decode(self, key: bytes, value: bytes | None, header: BatchHeader) -> CoordinatorRecord | None:
        if header.is_transactional:
            return decode_record(key, value, header.producer_id, header.producer_epoch)
        return decode_record(key, value)

    def decode_marker(self, header: BatchHeader, committed: bool) -> CoordinatorRecord | None:
        return TransactionEndRecord(header.producer_id, committed, header.producer_epoch)


GROUP_RECORDS = GroupRecordCodec()
