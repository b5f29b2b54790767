"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that speak the classic protocol inside a consumer group.

Such a member's generation is its member epoch. It never leads: the coordinator assigns. JoinGroup has the member's
subscription and owned partitions, and moves it one step towards its target; SyncGroup returns its assignment; Heartbeat
returns REBALANCE_IN_PROGRESS while a rejoin would change its assignment. No request waits for another member.

Source: KIP-848 (online migration); Kafka GroupMetadataManager (classicGroup...ToConsumerGroup).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import Moment, Protocols
from odradek.coordinator.group.classic.membership import (
    MEMBER_ID_REQUIRED_VERSION,
    Caller,
    distinct_protocols,
    rebalance_timeout_of,
)
from odradek.coordinator.group.classic.subscription import CONSUMER_PROTOCOL_TYPE, owned_partitions
from odradek.coordinator.group.consumer.access import check_max_size
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.conversion import assignment_bytes, by_id, can_be_read
from odradek.coordinator.group.consumer.deadlines import JOIN, SYNC, Deadlines
from odradek.coordinator.group.consumer.group_update import GroupUpdate
from odradek.coordinator.group.consumer.migration import Change, Migration, identity_of
from odradek.coordinator.group.consumer.state import (
    JOINING_EPOCH,
    NO_PARTITIONS,
    ClassicMetadata,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
)
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.coordinator.group.journal import Journal
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


class ClassicMembers:
    """The four requests, for one shard's consumer groups."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        default_assignor: str,
        deadlines: Deadlines,
        migration: Migration,
        topics: Callable[[], TopicsView],
        journal: Journal,
        assignment_interval_ms: Callable[[str], int],
    ) -> None:
        """
        Args:
            assignment_interval_ms: group id → minimum age in ms of its assignment before the next one is made.
        """
        self._journal = journal
        self._config = config
        self._default_assignor = default_assignor
        self._deadlines = deadlines
        self._migration = migration
        self._topics = topics
        self._assignment_interval_ms = assignment_interval_ms

    # ---- JoinGroup

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now: Moment
    ) -> tuple[Change, JoinGroupResponse]:
        """Join or rejoin a member; its generation is its member epoch.

        Raises:
            ApiError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED (the message is the id),
                UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        protocols = distinct_protocols(request)
        is_unknown = not request.member_id
        member_id = request.member_id or new_member_id(request, caller)
        check_max_size(group, member_id, self._config.max_size)
        _check_protocols(group, member_id, request.protocol_type, protocols)
        instance_id = request.group_instance_id
        if is_unknown and instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_VERSION:
            # The id is not stored: a client that returns with it is a new member of this id.
            raise ApiError(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        subscription = can_be_read(protocols)
        if subscription is None:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no subscription of the consumer protocol")
        interval_ms = self._assignment_interval_ms(group.group_id)
        draft = GroupUpdate(group, self._topics(), self._default_assignor, now.wall_ms, interval_ms)
        former_id, before, current = self._find(group, draft, member_id, instance_id, is_unknown)
        metadata = MemberMetadata(
            instance_id=instance_id,
            rack_id=subscription.rack_id or (None if before is None else before.rack_id),
            client_id=caller.client_id,
            client_host=caller.client_host,
            topic_names=tuple(subscription.topics),
            rebalance_timeout_ms=rebalance_timeout_of(request),
            classic=ClassicMetadata(request.session_timeout_ms, protocols),
        )
        draft.put(member_id, before, metadata)
        owned = by_id(owned_partitions(subscription), draft.view)
        step = draft.step(member_id, current, owned, former_id)
        if former_id is not None:
            reason = f"it takes the place of {former_id}, which is fenced"
            self._journal.record(group.group_id, "returned", now, identity_of(member_id, metadata), reason)
        elif before is None:
            identity = identity_of(member_id, metadata)
            self._journal.record(group.group_id, "joined", now, identity, request.reason or "", draft.group_epoch)
        draft.record_in_journal(self._journal, now, current, step)
        change = Change([*draft.records])
        if former_id is not None:
            change = self._migration.replaced(draft, member_id, former_id, step, now)
        if not change.is_downgrade:
            self._await_sync(group, member_id, metadata, now)
        response = JoinGroupResponse(
            generation_id=step.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )
        return change, response

    def _find(
        self, group: ConsumerGroup, draft: GroupUpdate, member_id: str, instance_id: str | None, is_unknown: bool
    ) -> tuple[str | None, MemberMetadata | None, CurrentAssignment]:
        """Return the former id of a static member, the member's metadata so far, and its assignment.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if instance_id is None:
            return None, group.members.get(member_id), group.current_of(member_id)
        holder = group.static_members.get(instance_id)
        if not is_unknown:
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id}")
            if holder != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now the member {holder}")
        if holder is None or holder == member_id:
            return None, group.members.get(member_id), group.current_of(member_id)
        # A static member returns without its id: it replaces the old id at once, which is fenced (KIP-345).
        before, current = group.members[holder], group.current_of(holder)
        draft.replace_static(holder, member_id)
        epoch = current.member_epoch if current.member_epoch > JOINING_EPOCH else draft.assignment_epoch
        taken = replace(current, member_epoch=epoch, previous_member_epoch=JOINING_EPOCH)
        return holder, before, taken

    def _await_sync(self, group: ConsumerGroup, member_id: str, metadata: MemberMetadata, now: Moment) -> None:
        self._deadlines.finish(JOIN, group.group_id, member_id)
        self._deadlines.assignment_changed(group.group_id, member_id, metadata, None, CurrentAssignment(), now)
        self._deadlines.start(SYNC, group.group_id, member_id, metadata, now)

    # ---- SyncGroup, Heartbeat

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Moment) -> SyncGroupResponse:
        """Return the member's assignment.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
                REBALANCE_IN_PROGRESS.
        """
        metadata, classic = _member(group, request.member_id, request.group_instance_id)
        current = group.current_of(request.member_id)
        _check_generation(current, request.generation_id)
        name = classic.protocols[0][0]
        other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
        if other_type or request.protocol_name not in (None, name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member's protocol is {name}")
        is_behind = group.assignment_epoch.value > current.member_epoch
        if is_behind and current.state is not MemberState.UNREVOKED_PARTITIONS:
            # A member that must revoke partitions first gets those that it keeps, and rejoins by itself.
            self._deadlines.start(JOIN, group.group_id, request.member_id, metadata, now)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        self._deadlines.finish(SYNC, group.group_id, request.member_id)
        self._deadlines.session_renewed(group.group_id, request.member_id, metadata, now)
        return SyncGroupResponse(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=name,
            assignment=assignment_bytes(classic, current.assigned, self._topics()),
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Moment) -> HeartbeatResponse:
        """Extend the member's session; REBALANCE_IN_PROGRESS if a rejoin would change its assignment.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        metadata, _ = _member(group, request.member_id, request.group_instance_id)
        current = group.current_of(request.member_id)
        _check_generation(current, request.generation_id)
        self._deadlines.session_renewed(group.group_id, request.member_id, metadata, now)
        interval_ms = self._assignment_interval_ms(group.group_id)
        is_due = group.assignment_delay_ms(interval_ms, now.wall_ms) == 0
        if must_join_again(group, request.member_id, current, is_due=is_due):
            self._deadlines.start(JOIN, group.group_id, request.member_id, metadata, now)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        return HeartbeatResponse()

    # ---- LeaveGroup

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, now: Moment) -> tuple[Change, LeaveGroupResponse]:
        """Remove members by their id or, for static ones of either protocol, by their instance id alone."""
        answers: list[MemberResponse] = []
        gone: dict[str, str] = {}
        for identity in request.members:
            answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
            answers.append(answer)
            try:
                gone[_leaving(group, identity)] = identity.reason or ""
            except ApiError as error:
                answer.error_code = error.code
        change = self._migration.remove(group, gone, now, "left") if gone else Change([])
        return change, LeaveGroupResponse(members=answers)


def new_member_id(request: JoinGroupRequest, caller: Caller) -> str:
    """The id for a member that joins without one."""
    return f"{caller.client_id if request.group_instance_id is None else request.group_instance_id}-{caller.id_suffix}"


def must_join_again(group: ConsumerGroup, member_id: str, current: CurrentAssignment, *, is_due: bool) -> bool:
    """Whether a rejoin would help: a new assignment exists, partitions must be revoked, or all awaited ones are free.

    Args:
        is_due: whether the assignment of a new group epoch may be made now: the rejoin makes it, as perhaps no other
            request of a member will.
    """
    newest = group.group_epoch.value if is_due else group.assignment_epoch.value
    if current.member_epoch < newest or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing: Partitions = (group.target.get(member_id) or NO_PARTITIONS) - current.assigned
    return all(group.is_free(partition, member_id) for partition in missing)


def _check_protocols(group: ConsumerGroup, member_id: str, protocol_type: str, protocols: Protocols) -> None:
    """Raises ApiError(INCONSISTENT_GROUP_PROTOCOL) if it shares no protocol with the group's classic members."""
    others = [classic for each, classic in group.classic_members.items() if each != member_id]
    common = [name for name, _ in protocols if all(name in dict(each.protocols) for each in others)]
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol in common with the other members")


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[MemberMetadata, ClassicMetadata]:
    """Return the member after checking its identity. Raises ApiError: FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID."""
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id}")
        if holder != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now another member")
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a classic member of the group")
    return member, member.classic


def _check_generation(current: CurrentAssignment, generation_id: int) -> None:
    if generation_id != current.member_epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the member is at generation {current.member_epoch}")


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> str:
    """The id of the member to remove: of either protocol, and static ones also by the instance id alone."""
    member_id = identity.member_id
    if identity.group_instance_id is not None:
        holder = group.static_members.get(identity.group_instance_id)
        if holder is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "no such static member")
        if member_id and holder != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{identity.group_instance_id} is now another member")
        return holder
    if member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of the group")
    return member_id
