"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups: each decides in one call and returns a `Result`.

Soft state (joined members, parked requests) changes at once; a generation that must be durable is returned as a record
and completed when it is committed (`complete_write`). A refusal is an ApiError, raised before any change.

Source: Kafka GroupMetadataManager; KIP-345 (static members), KIP-394 (MEMBER_ID_REQUIRED), KIP-559 (protocol checks),
KIP-800 (reasons), KIP-814 (skip_assignment).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Member, Moment, Protocols
from odradek.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance, Records
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.outcome import Outcome, PendingWrite, ResponseT, StoreAssignment, StoreStaticMember
from odradek.coordinator.group.records import CoordinatorRecord, group_record
from odradek.coordinator.group.registry import GroupRegistry
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.statemachine.machine import Result

# From this version on a dynamic member gets its id before it is added, so that a retry does not add a second member.
MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9
# Ids that were given out and not used yet, per group; group.max.size bounds only members that joined (KAFKA-7610).
MAX_PENDING_JOINS = 10_000
# A record has a member's metadata for one protocol. All its protocols together may be this many times as large.
PROTOCOLS_OF_FULL_SIZE = 4


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, and the values that the service adds.

    Attributes:
        client_host: as in Kafka's group metadata: "/127.0.0.1".
        ticket: identifies the response if the request is parked.
        id_suffix: makes a member id unique; random, from the service.
    """

    client_id: str
    client_host: str
    api_version: int
    ticket: int = -1
    id_suffix: str = ""


class Membership:
    """The requests of classic members, of one shard."""

    def __init__(self, groups: GroupRegistry, rebalance: Rebalance, max_record_bytes: Callable[[], int]) -> None:
        """
        Args:
            max_record_bytes: the largest record that the offsets topic accepts.
        """
        self._max_record_bytes = max_record_bytes
        self._groups = groups
        self._rebalance = rebalance
        self._config = rebalance.config

    def _result(
        self, records: Records, response: ResponseT | None = None, pending: PendingWrite | None = None
    ) -> Result[CoordinatorRecord, Outcome[ResponseT]]:
        return Result(records, Outcome(response, self._rebalance.pop_completions(), pending))

    # ---- JoinGroup

    def join(
        self, request: JoinGroupRequest, caller: Caller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[JoinGroupResponse]]:
        """Answer at once with the generation, an error or a new member id; or park until all members have joined."""
        protocols = distinct_protocols(request)
        if not self._can_be_stored(request, protocols):
            # The write would fail with this error. Parked until then, the request would only use memory.
            return self._result([], join_error(ErrorCode.UNKNOWN_SERVER_ERROR, request.member_id))
        if not request.member_id:
            group = self._groups.get_or_create(request.group_id)
            try:
                return self._join_new(group, request, protocols, caller, now)
            finally:
                self._groups.drop_if_unused(group)
        found = self._groups.find(request.group_id)
        if found is None:
            return self._result([], join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        if not self._has_room(found, request.member_id):
            self._rebalance.end_session(found, request.member_id)
            found.remove(request.member_id)
            records = self._rebalance.maybe_complete_join(found, now)
            return self._result(records, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        return self._join_known(found, request, protocols, caller, now)

    def _can_be_stored(self, request: JoinGroupRequest, protocols: Protocols) -> bool:
        """Whether a generation with this member fits a record, which has every member's metadata for one protocol."""
        limit = self._max_record_bytes()
        sizes = [len(metadata) for _, metadata in protocols]
        if max(sizes, default=0) > limit or sum(sizes) > PROTOCOLS_OF_FULL_SIZE * limit:
            return False
        group = self._groups.find(request.group_id)
        others = 0 if group is None else group.least_metadata_bytes - _replaced_bytes(group, request)
        return others + min(sizes, default=0) <= limit

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        max_size = self._config.max_size
        if group.is_in(GroupState.EMPTY, GroupState.DEAD) or len(group.members) < max_size:
            return True
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            # Members that joined count, so that a group above a lowered limit loses those that rejoin last.
            already = member is not None and member.awaiting_join is not None
            return already or group.awaiting_join_count < max_size
        return member is not None

    def _join_new(
        self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, caller: Caller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[JoinGroupResponse]]:
        if not self._has_room(group, ""):
            return self._result([], join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        if not group.supports_protocols(request.protocol_type, [name for name, _ in protocols]):
            return self._result([], join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        instance_id = request.group_instance_id
        member_id = f"{caller.client_id if instance_id is None else instance_id}-{caller.id_suffix}"
        if instance_id is not None and instance_id in group.static_members:
            return self._replace_static(group, request, protocols, caller, member_id, now)
        if instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_VERSION:
            if len(group.pending_joins) >= MAX_PENDING_JOINS:
                return self._result([], join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
            group.pending_joins[member_id] = None
            member = Member(member_id, None, "", "", 0, request.session_timeout_ms, request.protocol_type, ())
            self._rebalance.renew_session(group, member, now)
            return self._result([], join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return self._result(self._add_member(group, request, protocols, caller, member_id, now))

    def _add_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        member_id: str,
        now: Moment,
    ) -> Records:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            awaiting_join=caller.ticket,
            is_new=True,
        )
        if group.initial_delay is not None:
            group.new_member_added = True
        group.add(member)
        self._rebalance.record(group, member, "joined", request.reason or "", now)
        self._rebalance.renew_session(group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalance.rebalance_or_complete(group, now, f"member {member_id} joined")

    def _join_known(
        self, group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, caller: Caller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[JoinGroupResponse]]:
        member_id = request.member_id
        if not group.supports_protocols(request.protocol_type, [name for name, _ in protocols]):
            return self._result([], join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        if member_id in group.pending_joins and request.group_instance_id is None:
            return self._result(self._add_member(group, request, protocols, caller, member_id, now))
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except ApiError as error:
            return self._result([], join_error(error.code, member_id))
        same = member.protocols == protocols
        if group.is_in(GroupState.COMPLETING_REBALANCE) and same:
            # The member may not have received the answer to its first JoinGroup.
            return self._result([], self._rebalance.joined_response(group, member))
        if group.is_in(GroupState.STABLE) and same and not group.is_leader(member_id):
            return self._result([], self._rebalance.joined_response(group, member))
        # A leader that rejoins requests a rebalance: it may have seen a change that its metadata does not show.
        self._rebalance.record_rejoin(group, member, protocols[0][1], now)
        self._update(group, member, request, protocols, caller.ticket)
        why = f"member {member_id} joined again"
        if group.is_leader(member_id) and same:
            why = f"the leader {member_id} joined again: it saw topics change, or asks for a new assignment"
        elif not same:
            why = f"member {member_id} joined again with another subscription, or other partitions"
        if request.reason:
            why = f"{why} ({request.reason})"
        return self._result(self._rebalance.rebalance_or_complete(group, now, why))

    def _update(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, protocols: Protocols, ticket: int
    ) -> None:
        """A member rejoins. The client of its parked JoinGroup, if any, has disconnected and sent this one."""
        if member.awaiting_join is not None:
            self._rebalance.complete_member_join(member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.change_protocols(member, protocols)
        member.rebalance_timeout_ms = rebalance_timeout_of(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = ticket

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        new_member_id: str,
        now: Moment,
    ) -> Result[CoordinatorRecord, Outcome[JoinGroupResponse]]:
        """A static member rejoins without its id: it replaces its old member id, which is fenced."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_member_id = group.static_members[instance_id]
        old = group.members[old_member_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalance.complete_member_join(old, join_error(fenced, old_member_id))
        self._rebalance.complete_member_sync(old, SyncGroupResponse(error_code=fenced))
        self._rebalance.end_session(group, old_member_id)
        pending = StoreStaticMember(
            group_id=group.group_id,
            generation_id=group.generation_id,
            group_instance_id=instance_id,
            old_member_id=old_member_id,
            new_member_id=new_member_id,
            old_leader_id=group.leader_id,
            old_protocols=old.protocols,
            old_rebalance_timeout_ms=old.rebalance_timeout_ms,
            old_session_timeout_ms=old.session_timeout_ms,
            ticket=caller.ticket,
            api_version=caller.api_version,
        )
        member = group.rename_static(instance_id, new_member_id)
        member.is_new = False
        member.client_id, member.client_host = caller.client_id, caller.client_host
        self._rebalance.record(
            group, member, "returned", f"it takes the place of {old_member_id}, which is fenced", now
        )
        self._update(group, member, request, protocols, caller.ticket)
        self._rebalance.renew_session(group, member, now)
        if group.is_in(GroupState.STABLE) and group.select_protocol() == group.protocol_name:
            # The assignment is unchanged, so the other members continue: only the new id is stored (KIP-345).
            return self._result([group_record(group, dict(group.assignments()))], None, pending)
        why = f"static member {instance_id} came back with other protocols, or during a rebalance"
        return self._result(self._rebalance.rebalance_or_complete(group, now, why))

    # ---- SyncGroup

    def sync(
        self, request: SyncGroupRequest, caller: Caller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[SyncGroupResponse]]:
        """Store the leader's assignment; answer each member with its own, or park it until there is one.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
                REBALANCE_IN_PROGRESS.
        """
        group = self._groups.find(request.group_id)
        if group is None or group.is_in(GroupState.EMPTY):
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no members")
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is at generation {group.generation_id}")
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group chose another protocol")
        if group.is_in(GroupState.PREPARING_REBALANCE):
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        group.pending_syncs.pop(member.member_id, None)
        if group.is_in(GroupState.STABLE):
            response = SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
            )
            return self._result([], response)
        assert group.is_in(GroupState.COMPLETING_REBALANCE), group.state
        self._rebalance.complete_member_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = caller.ticket
        if not group.is_leader(member.member_id):
            return self._result([])
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        pending = StoreAssignment(group.group_id, group.generation_id, assignments)
        return self._result([group_record(group, assignments)], None, pending)

    # ---- Heartbeat

    def heartbeat(
        self, request: HeartbeatRequest, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[HeartbeatResponse]]:
        """Extend the member's session; during a rebalance the answer is REBALANCE_IN_PROGRESS.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        group = self._groups.find(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is at generation {group.generation_id}")
        self._rebalance.renew_session(group, member, now)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        return self._result([], HeartbeatResponse())

    # ---- LeaveGroup

    def leave(self, request: LeaveGroupRequest, now: Moment) -> Result[CoordinatorRecord, Outcome[LeaveGroupResponse]]:
        """Remove members by their id or, for static ones, by their instance id alone (KIP-345)."""
        group = self._groups.find(request.group_id)
        answers: list[MemberResponse] = []
        left = False
        for identity in request.members:
            answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
            answers.append(answer)
            try:
                if group is None:
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
                self._remove(group, identity, now)
                left = True
            except ApiError as error:
                answer.error_code = error.code
        records: Records = []
        if group is not None and left:
            gone = ", ".join(each.member_id or each.group_instance_id or "" for each in answers if not each.error_code)
            records = self._rebalance.after_removal(group, now, f"left: {gone}")
            if not records:
                self._groups.drop_if_unused(group)
        return self._result(records, LeaveGroupResponse(members=answers))

    def _remove(self, group: ClassicGroup, identity: MemberIdentity, now: Moment) -> None:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            holder = None if instance_id is None else group.static_members.get(instance_id)
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "no such static member")
            member_id, instance_id = holder, None
        if member_id in group.pending_joins:
            self._rebalance.end_session(group, member_id)
            group.remove(member_id)
            return
        member = group.check_member(member_id, instance_id)
        self._rebalance.record_removal(group, member, "left", identity.reason or "", now)
        self._rebalance.remove_member(group, member)

    # ---- after the write

    def complete_write(
        self, pending: StoreAssignment | StoreStaticMember, error: ErrorCode, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[None]]:
        """A write is committed (`error` NONE) or failed: answer the requests that still wait for it."""
        group = self._groups.find(pending.group_id)
        if group is None:
            return self._result([])
        if isinstance(pending, StoreStaticMember):
            self._complete_static_join(group, pending, error, now)
            return self._result([])
        if not group.is_in(GroupState.COMPLETING_REBALANCE) or group.generation_id != pending.generation_id:
            return self._result([])  # a rebalance began meanwhile, and answered them
        if error is not ErrorCode.NONE:
            self._rebalance.reset_assignments(group, error, now)
            why = f"the assignment could not be stored ({error.name})"
            return self._result(self._rebalance.rebalance_or_complete(group, now, why))
        for member_id, member in group.members.items():
            member.assignment = pending.assignments.get(member_id, b"")
        self._rebalance.record_assigned(group, now)
        self._rebalance.propagate(group, ErrorCode.NONE, now)
        group.transition_to(GroupState.STABLE, now)
        return self._result([])

    def _complete_static_join(
        self, group: ClassicGroup, pending: StoreStaticMember, error: ErrorCode, now: Moment
    ) -> None:
        member = group.members.get(pending.new_member_id)
        if member is None or member.awaiting_join != pending.ticket:
            return  # replaced again, removed, or already answered by a rebalance
        if error is not ErrorCode.NONE:
            self._rebalance.complete_member_join(member, join_error(error))
            self._rebalance.end_session(group, member.member_id)
            member = group.rename_static(pending.group_instance_id, pending.old_member_id)
            group.change_protocols(member, pending.old_protocols)
            member.rebalance_timeout_ms = pending.old_rebalance_timeout_ms
            member.session_timeout_ms = pending.old_session_timeout_ms
            self._rebalance.renew_session(group, member, now)
            return
        if not group.is_in(GroupState.STABLE) or group.generation_id != pending.generation_id:
            return  # it has joined the rebalance that began meanwhile
        skip = pending.api_version >= SKIP_ASSIGNMENT_VERSION
        response = self._rebalance.joined_response(group, member, with_members=None if skip else False)
        if skip:
            response.skip_assignment = group.is_leader(member.member_id)
        else:
            # With the old id as the leader it does not assign: before version 9 a response had no skip_assignment.
            response.leader = pending.old_leader_id or ""
        self._rebalance.complete_member_join(member, response)


def join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """The rebalance timeout in ms; version 0 has none and uses the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def distinct_protocols(request: JoinGroupRequest) -> Protocols:
    """The protocols in the request's order; of several with one name the first."""
    chosen: dict[str, bytes] = {}
    for protocol in request.protocols:
        chosen.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(chosen.items())


def _replaced_bytes(group: ClassicGroup, request: JoinGroupRequest) -> int:
    """The least metadata of the members in whose place the request's member joins."""
    replaced = {request.member_id}
    if request.group_instance_id is not None:
        replaced.add(group.static_members.get(request.group_instance_id, ""))
    return sum(group.members[each].least_metadata_bytes for each in replaced if each in group.members)


def _differs(given: str | None, expected: str | None) -> bool:
    return given is not None and expected is not None and given != expected
