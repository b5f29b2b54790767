"""The rebalance of a classic group: its phases, timers, and answers to parked requests.

    prepare()  --all joined, or timeout-->  complete_join()  --the leader's assignment stored-->  propagate()

Operations of `membership` and timers call these functions. They change soft state only, and return the records to
write. Answers to parked requests are collected and taken once per operation.

Source: Kafka GroupMetadataManager (prepareRebalance, completeClassicGroupJoin, ...); KIP-62, KIP-134.
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Completion, Member, Moment
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.classic.subscription import held_after_join
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.journal import Journal, MemberIdentity
from odradek.coordinator.group.records import CoordinatorRecord, group_record
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.group.timers import TimerKey, Timers
from odradek.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

Records = list[CoordinatorRecord]

# A new member cannot send heartbeats before it knows its id, and a parked request does not show whether its client
# lives. So its first JoinGroup expires after this time; a live client retries. Kafka's constant (KAFKA-7610).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class Rebalance:
    """The phases of a rebalance, for the groups and timers of one shard."""

    def __init__(self, config: GroupConfig, groups: GroupRegistry, timers: Timers, journal: Journal) -> None:
        self.config = config
        self.groups = groups
        self.journal = journal
        self.timers = timers
        self._completions: list[Completion] = []

    def pop_completions(self) -> list[Completion]:
        """The parked requests that were answered since the last call."""
        taken, self._completions = self._completions, []
        return taken

    # ---- answering parked requests

    def complete(self, ticket: int, response: object) -> None:
        self._completions.append(Completion(ticket, response))

    def complete_member_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's parked JoinGroup, if any."""
        if member.awaiting_join is not None:
            self.complete(member.awaiting_join, response)
            member.awaiting_join = None

    def complete_member_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Answer the member's parked SyncGroup; returns whether it had one."""
        if member.awaiting_sync is None:
            return False
        self.complete(member.awaiting_sync, response)
        member.awaiting_sync = None
        return True

    # ---- timers

    def renew_session(self, group: ClassicGroup, member: Member, now: Moment, timeout_ms: int | None = None) -> None:
        """Restart the member's session: it must be heard again within `timeout_ms`, by default its session timeout."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.set(TimerKey("session", group.group_id, member.member_id), now.monotonic_ms + timeout_ms)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(TimerKey("session", group.group_id, member_id))

    def _set_group_timer(self, kind: str, group: ClassicGroup, delay_ms: int, now: Moment) -> None:
        self.timers.set(TimerKey(kind, group.group_id), now.monotonic_ms + delay_ms)

    # ---- the phases

    def rebalance_or_complete(self, group: ClassicGroup, now: Moment, why: str) -> Records:
        """After a change of the members: begin a rebalance, or check whether the present one can complete."""
        return self.prepare(group, now, why) if group.can_rebalance else self.maybe_complete_join(group, now)

    def prepare(self, group: ClassicGroup, now: Moment, why: str) -> Records:
        """Make all members rejoin. The first rebalance of an empty group waits for more members instead."""
        self.journal.rebalance(group.group_id, now, why, group.next_generation)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_syncs.clear()
        self.timers.cancel(TimerKey("sync", group.group_id))
        is_initial = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, now)
        if is_initial:
            delay_ms = self.config.initial_rebalance_delay_ms
            group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            group.new_member_added = False
            self._set_group_timer("join", group, delay_ms, now)
            return []
        if group.all_members_joined:
            return self.complete_join(group, now)
        self._set_group_timer("join", group, group.rebalance_timeout_ms, now)
        return []

    def maybe_complete_join(self, group: ClassicGroup, now: Moment) -> Records:
        """Complete the join phase if all members have joined; an initial rebalance always waits for its delay."""
        if not group.is_in(GroupState.PREPARING_REBALANCE) or group.initial_delay is not None:
            return []
        return self.complete_join(group, now) if group.all_members_joined else []

    def complete_join(self, group: ClassicGroup, now: Moment) -> Records:
        """Start the next generation with the members that joined; other dynamic members are removed."""
        self.timers.cancel(TimerKey("join", group.group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                self.record_removal(group, member, "removed", "it did not join the rebalance in time", now)
                group.remove(member.member_id)
                self.end_session(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only silent static members remain: until their sessions expire there is no leader.
            group.initial_delay = None
            self._set_group_timer("join", group, group.rebalance_timeout_ms, now)
            return []
        group.start_generation(now)
        if group.is_in(GroupState.EMPTY):
            return [group_record(group, {})]
        for member in group.members.values():
            self.complete_member_join(member, self.joined_response(group, member))
            self.renew_session(group, member, now)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self._set_group_timer("sync", group, group.rebalance_timeout_ms, now)
        return []

    def joined_response(
        self, group: ClassicGroup, member: Member, *, with_members: bool | None = None
    ) -> JoinGroupResponse:
        """A member's JoinGroup response for the present generation; the leader's has all members' metadata."""
        members: list[JoinGroupResponseMember] = []
        if group.is_leader(member.member_id) if with_members is None else with_members:
            name = group.protocol_name or ""
            members = [
                JoinGroupResponseMember(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, metadata=each.metadata(name)
                )
                for each in group.members.values()
            ]
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=members,
        )

    def reset_assignments(self, group: ClassicGroup, error: ErrorCode, now: Moment) -> None:
        """Clear the assignments of this generation; parked SyncGroups get the error."""
        for member in group.members.values():
            member.assignment = b""
        self.propagate(group, error, now)

    def propagate(self, group: ClassicGroup, error: ErrorCode, now: Moment) -> None:
        """Answer the parked SyncGroups with each member's assignment, or with an error."""
        ok = error is ErrorCode.NONE
        for member in group.members.values():
            response = SyncGroupResponse(
                error_code=error,
                protocol_type=group.protocol_type if ok else None,
                protocol_name=group.protocol_name if ok else None,
                assignment=member.assignment,
            )
            if self.complete_member_sync(member, response):
                # A session that expired while the request was parked was ignored, so the member has no session timer
                # now.
                self.renew_session(group, member, now)

    def remove_member(self, group: ClassicGroup, member: Member) -> None:
        """Remove a member; its parked JoinGroup gets UNKNOWN_MEMBER_ID, and the client may rejoin."""
        self.end_session(group, member.member_id)
        self.complete_member_join(member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self.complete_member_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def retire(self, group: ClassicGroup) -> None:
        """The group changes its protocol: parked requests get a retriable error, and its timers are cancelled."""
        self.retire_id(group.group_id)
        for member in group.members.values():
            busy = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            self.complete_member_join(member, busy)
            self.complete_member_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def retire_id(self, group_id: str) -> None:
        """Remove the live group and its timers."""
        group = self.groups.remove(group_id)
        for kind in ("join", "sync"):
            self.timers.cancel(TimerKey(kind, group_id))
        if group is not None:
            for member_id in [*group.members, *group.pending_joins]:
                self.timers.cancel(TimerKey("session", group_id, member_id))

    # ---- events of the journal

    def record(self, group: ClassicGroup, member: Member, kind: str, reason: str, now: Moment) -> None:
        self.journal.record(group.group_id, kind, now, identity(member), reason, group.generation_id)

    def record_removal(self, group: ClassicGroup, member: Member, kind: str, reason: str, now: Moment) -> None:
        """A member was removed, and its partitions have no owner."""
        self.record(group, member, kind, reason, now)
        if group.uses_consumer_protocol:
            assigned, _ = held_after_join(member.assignment, member.metadata(group.protocol_name or ""))
            self.journal.released(group.group_id, sorted(assigned), now)

    def record_rejoin(self, group: ClassicGroup, member: Member, subscription: bytes, now: Moment) -> None:
        """A member rejoins: partitions that it no longer owns have no owner until the rebalance completes."""
        if group.uses_consumer_protocol:
            assigned, owned = held_after_join(member.assignment, subscription)
            self.journal.released(group.group_id, sorted(assigned - owned), now)

    def record_assigned(self, group: ClassicGroup, now: Moment) -> None:
        """Every member has its assignment."""
        if group.uses_consumer_protocol:
            for member in group.members.values():
                assigned, owned = held_after_join(member.assignment, member.metadata(group.protocol_name or ""))
                self.journal.assigned(group.group_id, sorted(assigned - owned), now, group.generation_id)
        self.journal.rebalance_completed(group.group_id)

    # ---- timers

    def on_join_timer(self, group: ClassicGroup, now: Moment) -> Records:
        """The rebalance timeout, or the end of the initial delay, which new members extend up to that timeout."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return []
        if group.initial_delay is not None:
            delay_ms, remaining_ms = group.initial_delay
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                next_delay_ms = min(self.config.initial_rebalance_delay_ms, remaining_ms)
                group.initial_delay = (next_delay_ms, max(remaining_ms - delay_ms, 0))
                self._set_group_timer("join", group, next_delay_ms, now)
                return []
        return self.complete_join(group, now)

    def on_sync_timer(self, group: ClassicGroup, now: Moment) -> Records:
        """Remove members that did not send SyncGroup for this generation (KAFKA-12890)."""
        late = list(group.pending_syncs)
        if not late or not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return []
        for member_id in late:
            self.end_session(group, member_id)
            if (member := group.members.get(member_id)) is not None:
                self.record_removal(group, member, "removed", "it did not ask for its assignment in time", now)
            group.remove(member_id)
        return self.prepare(group, now, "members did not ask for their assignment in time")

    def on_session_timer(self, group: ClassicGroup, member_id: str, now: Moment) -> Records:
        """A member's session expired."""
        if member_id in group.pending_joins:
            group.remove(member_id)
            records = self.maybe_complete_join(group, now)
            self.groups.drop_if_unused(group)
            return records
        member = group.members.get(member_id)
        if member is None or member.satisfies_heartbeat:
            return []
        reason = f"it sent no heartbeat within its session timeout of {member.session_timeout_ms} ms"
        self.record_removal(group, member, "removed", reason, now)
        self.remove_member(group, member)
        return self.after_removal(group, now, f"the session of member {member_id} timed out")

    def after_removal(self, group: ClassicGroup, now: Moment, why: str) -> Records:
        """After a removal of members: begin a rebalance, or check whether the present one can complete."""
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(group, now, why)
        return self.maybe_complete_join(group, now)


def identity(member: Member) -> MemberIdentity:
    """A member's identity in the journal."""
    return MemberIdentity(member.member_id, member.group_instance_id, member.client_id, member.client_host)
