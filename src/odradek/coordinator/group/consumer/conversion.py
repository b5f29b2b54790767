"""One group under the other protocol: a classic group as records of a consumer group, and back, and no member is lost.

Upgrade, when a member of the consumer protocol joins a classic group. Every member keeps its id, its generation as its
member epoch, and the partitions that it may have; it goes on with JoinGroup and SyncGroup (see `classic_members`).
Downgrade, when the last member of the consumer protocol leaves: the group epoch is the generation that goes on.

What a member may still have is taken from the last assignment that was stored, and from what it said to own when it
joined: a partition that is promised again too early would have two readers. Kafka takes the last assignment alone.

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
from odradek.coordinator.group.consumer.draft import Records
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

# Of Kafka's own clients: what they assign is partitions alone.
STOCK_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A consumer group that is nowhere yet, and the records that make it."""

    group: ConsumerGroup
    records: Records


def upgraded(classic: ClassicGroup, stored: GroupMetadataValue | None, view: TopicsView) -> Upgraded:
    """A classic group with members, of the consumer protocol type, as a consumer group.

    Args:
        stored: its last durable generation.
    Raises:
        ProtocolError: a member's bytes are no subscription, or no assignment.
    """
    subscriptions = {member_id: _subscription(classic, member) for member_id, member in classic.members.items()}
    held = _held(classic, stored, subscriptions, view)
    # A group in its first rebalance has no generation yet, and a consumer group begins with its first epoch.
    epoch, group_id = max(classic.generation_id, INITIAL_EPOCH), classic.group_id
    names = [topic for each in subscriptions.values() for topic in each.topics]
    records: Records = []
    for member_id, member in classic.members.items():
        records.append(member_record(group_id, member_id, _metadata(member, subscriptions[member_id])))
    records.append(epoch_record(group_id, epoch, view.metadata_hash(names)))
    records += [target_record(group_id, member_id, partitions) for member_id, partitions in held.items()]
    # It was made by another: a member that joins now does not wait for its age.
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
    """Whether members get more from their leader than partitions, as by Kafka Streams': a coordinator cannot.

    Kafka refuses every group with such data. librdkafka's sticky assignors send along what only their next leader
    reads, so that names of Kafka's own assignors pass here.

    Raises:
        ProtocolError: a member's bytes are no assignment.
    """
    if classic.protocol_name in STOCK_ASSIGNORS:
        return False
    return any(has_user_data(member.assignment) for member in classic.members.values())


def _subscription(classic: ClassicGroup, member: Member) -> ConsumerProtocolSubscription:
    """Of the protocol that the group chose; where it has not yet, of the member's first choice."""
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
    """What each member may have. Where two say so, the one that was assigned it."""
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
    """Partitions by topic id; those of topics that are gone are left out."""
    topics = view.by_name
    return frozenset((topics[name].topic_id, index) for name, index in named if name in topics)


def by_name(partitions: Partitions, view: TopicsView) -> dict[str, list[int]]:
    """Partition numbers by topic name, in order; those of topics that are gone are left out."""
    return {view.by_id[topic_id].name: ids for topic_id, ids in by_topic(partitions).items() if topic_id in view.by_id}


def assignment_bytes(classic: ClassicMetadata, partitions: Partitions, view: TopicsView) -> bytes:
    """The assignment that a classic member gets, in the version that it speaks."""
    return write_assignment(by_name(partitions, view), like=classic.protocols[0][1])


def downgraded(
    group_id: str,
    generation_id: int,
    members: dict[str, MemberMetadata],
    current: dict[str, CurrentAssignment],
    view: TopicsView,
    now: Moment,
) -> ClassicGroup | None:
    """A Stable classic group of these members; None where they have no protocol in common.

    Args:
        members: all speak the classic protocol; not empty.
        current: what each of them has.
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
    """The subscription in the first of some protocols; None where it is none."""
    for _, metadata in protocols:
        try:
            return read_subscription(metadata)
        except ProtocolError:
            return None
    return None
