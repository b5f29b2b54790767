"""Conversion of a classic group to a consumer group's records, and back, without loss of a member.

An upgrade happens when a member of the consumer protocol joins a classic group. Every member keeps its id, its
generation as its member epoch, and its partitions; it continues with JoinGroup and SyncGroup (see
`classic_members`). A downgrade
happens when the last member of the consumer protocol leaves: the group epoch becomes the generation.

A member's partitions are those of the last stored assignment, and those that it owned by its own statement when it
joined: a partition that is assigned again too early would have two readers. Kafka uses the last assignment alone.

Source: KIP-848 (online migration); Kafka ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from odradek.common.errors import ProtocolError
from odradek.coordinator.group.classic.group import ClassicGroup, Member, Moment
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.classic.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartitions,
    has_user_data,
    owned_partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from odradek.coordinator.group.consumer.group_update import Records
from odradek.coordinator.group.consumer.records import (
    apply_record,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from odradek.coordinator.group.consumer.state import (
    INITIAL_EPOCH,
    NO_PARTITIONS,
    ClassicMetadata,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
    by_topic,
    in_order,
)
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue
from odradek.statemachine.timeline import Timeline

# Kafka's own client assignors: their assignments have partitions only.
STOCK_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A consumer group that is not yet in the registry, and the records that create it."""

    group: ConsumerGroup
    records: Records


def upgraded(classic: ClassicGroup, stored: GroupMetadataValue | None, view: TopicsView) -> Upgraded:
    """Convert a classic group with members, of the consumer protocol type, to a consumer group.

    Args:
        stored: its last durable generation.
    Raises:
        ProtocolError: a member's subscription or assignment does not parse.
    """
    subscriptions = {member_id: _subscription(classic, member) for member_id, member in classic.members.items()}
    held = _held(classic, stored, subscriptions, view)
    # A group in its first rebalance has no generation yet; a consumer group begins with its first epoch.
    epoch, group_id = max(classic.generation_id, INITIAL_EPOCH), classic.group_id
    names = [topic for each in subscriptions.values() for topic in each.topics]
    records: Records = []
    for member_id, member in classic.members.items():
        records.append(member_record(group_id, member_id, _metadata(member, subscriptions[member_id])))
    records.append(epoch_record(group_id, epoch, view.metadata_hash(names)))
    records += [target_record(group_id, member_id, partitions) for member_id, partitions in held.items()]
    # The classic leader made this assignment: a member that joins now does not wait for its minimum age.
    records.append(target_epoch_record(group_id, epoch, 0))
    for member_id, partitions in held.items():
        epochs = dict.fromkeys(in_order(partitions), epoch)
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, partitions, NO_PARTITIONS, epochs)
        records.append(current_record(group_id, member_id, current))
    group = ConsumerGroup(group_id, Timeline())
    for record in records:
        apply_record(group, record)
    return Upgraded(group, records)


def needs_its_leader(classic: ClassicGroup) -> bool:
    """Whether members get user data from their leader, as in Kafka Streams, which a coordinator cannot compute.

    Kafka refuses every group with such data. librdkafka's sticky assignors send data that only their next leader
    reads; so groups with the names of Kafka's own assignors are accepted here.

    Raises:
        ProtocolError: a member's assignment does not parse.
    """
    if classic.protocol_name in STOCK_ASSIGNORS:
        return False
    return any(has_user_data(member.assignment) for member in classic.members.values())


def _subscription(classic: ClassicGroup, member: Member) -> ConsumerProtocolSubscription:
    """The member's subscription in the group's protocol; if none is selected yet, in its preferred protocol."""
    return read_subscription(member.metadata(classic.protocol_name or "") or member.protocols[0][1])


def _metadata(member: Member, subscription: ConsumerProtocolSubscription) -> MemberMetadata:
    return MemberMetadata(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _held(
    classic: ClassicGroup,
    stored: GroupMetadataValue | None,
    subscriptions: dict[str, ConsumerProtocolSubscription],
    view: TopicsView,
) -> dict[str, Partitions]:
    """The partitions that each member may have. If two claim one, it belongs to the member that it was assigned to."""
    remembered = {} if stored is None else {each.member_id: bytes(each.assignment) for each in stored.members}
    assigned = {
        member_id: read_assignment(member.assignment or remembered.get(member_id, b""))
        for member_id, member in classic.members.items()
    }
    taken: set[tuple[UUID, int]] = set()
    held: dict[str, set[tuple[UUID, int]]] = {member_id: set() for member_id in assigned}
    said = {member_id: owned_partitions(each) for member_id, each in subscriptions.items()}
    for claims in (assigned, said):
        for member_id, named in claims.items():
            fresh = by_id(named, view) - taken
            held[member_id] |= fresh
            taken |= fresh
    return {member_id: frozenset(partitions) for member_id, partitions in held.items()}


def by_id(named: NamedPartitions, view: TopicsView) -> Partitions:
    """Partitions by topic id; those of deleted topics are omitted."""
    topics = view.by_name
    return frozenset((topics[name].topic_id, index) for name, index in named if name in topics)


def by_name(partitions: Partitions, view: TopicsView) -> dict[str, list[int]]:
    """Partition ids by topic name, in order; those of deleted topics are omitted."""
    return {view.by_id[topic_id].name: ids for topic_id, ids in by_topic(partitions).items() if topic_id in view.by_id}


def assignment_bytes(classic: ClassicMetadata, partitions: Partitions, view: TopicsView) -> bytes:
    """Encode the assignment of a classic member, in the version of its subscription."""
    return write_assignment(by_name(partitions, view), like=classic.protocols[0][1])


def downgraded(
    group_id: str,
    generation_id: int,
    members: dict[str, MemberMetadata],
    current: dict[str, CurrentAssignment],
    view: TopicsView,
    now: Moment,
) -> ClassicGroup | None:
    """Create a Stable classic group of these members; None if they have no common protocol.

    Args:
        members: all use the classic protocol; not empty.
        current: the assignment of each.
    """
    classic = ClassicGroup(group_id)
    for member_id, metadata in members.items():
        assert metadata.classic is not None
        classic.add(
            Member(
                member_id=member_id,
                group_instance_id=metadata.instance_id,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                rebalance_timeout_ms=metadata.rebalance_timeout_ms,
                session_timeout_ms=metadata.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=metadata.classic.protocols,
                assignment=assignment_bytes(metadata.classic, current[member_id].held, view),
            )
        )
    if not classic.candidate_protocols():
        return None
    classic.state, classic.state_timestamp_ms = GroupState.STABLE, now.wall_ms
    classic.generation_id = generation_id
    classic.protocol_name = classic.select_protocol()
    classic.refresh_subscription()
    return classic


def can_be_read(protocols: Iterable[tuple[str, bytes]]) -> ConsumerProtocolSubscription | None:
    """The subscription of the first protocol; None if it does not parse."""
    for _, metadata in protocols:
        try:
            return read_subscription(metadata)
        except ProtocolError:
            return None
    return None
