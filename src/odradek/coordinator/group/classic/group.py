"""A classic group in memory: its members, votes and parked requests.

Only the stored generation is durable (see `registry`); all other state is soft and ends with the leadership, as in
Kafka: after a failover members continue their generation, or rejoin. This module reads no clock and answers no client:
a parked request is identified by its ticket, a number from the service.

Source: Kafka ClassicGroup, ClassicGroupMember; KIP-62, KIP-345 (static members), KIP-394 (pending members).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.state import TRANSITIONS, GroupState
from odradek.coordinator.group.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics

Protocols = tuple[tuple[str, bytes], ...]


class Moment(NamedTuple):
    """The time of both clocks: `wall_ms` is for records, `monotonic_ms` for deadlines."""

    wall_ms: int
    monotonic_ms: int


class Completion(NamedTuple):
    """The ticket of a parked request, and its response."""

    ticket: int
    response: object


@dataclass(slots=True)
class Member:
    """One member. `protocols` are its protocols with their metadata, most preferred first.

    Attributes:
        awaiting_join, awaiting_sync: the ticket of its parked request, or None.
        is_new: it has not received its member id yet, so it cannot send heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: int | None = None
    awaiting_sync: int | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whether no heartbeat is due: a parked request keeps its member from sending one. A new one may be dead."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def least_metadata_bytes(self) -> int:
        """The minimum size in bytes of its metadata in a group's record, for any protocol."""
        return min((len(metadata) for _, metadata in self.protocols), default=0)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for one protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Iterable[str]) -> str:
        """The member's preferred protocol among `candidates`, all of which it supports."""
        wanted = set(candidates)
        return next(name for name, _ in self.protocols if name in wanted)


class ClassicGroup:
    """See the module's head; states and transitions are in `state`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms: int | None = None
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        # How many members support each protocol, and the sum of their least metadata: a rebalance of n members asks
        # for both n times.
        self._supporter_counts: dict[str, int] = {}
        self.least_metadata_bytes = 0
        self.static_members: dict[str, str] = {}  # group.instance.id -> member id
        self.pending_joins: dict[str, None] = {}  # member ids given out by MEMBER_ID_REQUIRED, in order
        self.pending_syncs: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        # (this delay in ms, the rest that may be added, whether a member joined during it) of the delayed first
        # rebalance of an empty group. None once the group has members.
        self.initial_delay: tuple[int, int] | None = None
        self.new_member_added = False
        # A generation that may be in the log already, though no member received it.
        self.reserved_generation = 0

    def transition_to(self, state: GroupState, now: Moment) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id}: {self.state.value} -> {state.value}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now.wall_ms

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def all_members_joined(self) -> bool:
        return not self.pending_joins and all(member.awaiting_join is not None for member in self.members.values())

    @property
    def can_rebalance(self) -> bool:
        return GroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def next_generation(self) -> int:
        """The generation of the next rebalance."""
        return max(self.generation_id, self.reserved_generation) + 1

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def add(self, member: Member) -> None:
        """Add a member; the first one sets the protocol type and becomes the leader."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not; if it was the leader, another member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        assert self.leader_id is None or self.leader_id in self.members, f"{self.leader_id} leads {self.group_id}"
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        """Change the protocols of a member."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: Member, change: int) -> None:
        """Count a member's protocols (`change` 1), or no longer (-1)."""
        self.least_metadata_bytes += change * member.least_metadata_bytes
        for name, _ in member.protocols:
            self._supporter_counts[name] = self._supporter_counts.get(name, 0) + change
            if not self._supporter_counts[name]:
                del self._supporter_counts[name]

    def rename_static(self, group_instance_id: str, new_member_id: str) -> Member:
        """Change the id of a static member, which keeps its position, assignment and leadership."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members[old_member_id]
        member.member_id = new_member_id
        renamed = {new_member_id if key == old_member_id else key: value for key, value in self.members.items()}
        self.members = renamed
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_syncs:
            del self.pending_syncs[old_member_id]
            self.pending_syncs[new_member_id] = None
        return member

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined this round; False if no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if leader is None or joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def candidate_protocols(self) -> list[str]:
        """The protocols that every member supports."""
        return [name for name, count in self._supporter_counts.items() if count == len(self.members)]

    def select_protocol(self) -> str:
        """The common protocol with the most votes; of several, the one with the earliest vote."""
        candidates = self.candidate_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether the group still has a common protocol if a member with these protocols joins."""
        names = list(names)
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        candidates = set(self.candidate_protocols()) if self.members else set(names)
        return any(name in candidates for name in names)

    def start_generation(self, now: Moment) -> None:
        """Make the members that joined the next generation; Empty if there are none."""
        before, self.generation_id = self.generation_id, self.next_generation
        assert self.generation_id > before, f"group {self.group_id}: generation {before} -> {self.generation_id}"
        self.initial_delay = None
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscription()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now)

    def refresh_subscription(self) -> None:
        """Compute the topics that the members consume: expiry and OffsetDelete keep their offsets.

        None if unknown, because the group does not use the consumer protocol or its bytes do not parse.
        """
        self.subscribed_topics = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self.subscribed_topics = frozenset()
        elif self.protocol_name is not None:
            name = self.protocol_name
            self.subscribed_topics = subscribed_topics(member.metadata(name) for member in self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may consume `topic`; True if the topics are unknown."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    def assignments(self) -> Mapping[str, bytes]:
        return {member_id: member.assignment for member_id, member in self.members.items()}

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member of a request after checking its identity.

        Raises:
            ApiError: FENCED_INSTANCE_ID if another member has the instance id; UNKNOWN_MEMBER_ID.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {group_instance_id}")
            if holder != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id} is now another member")
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not in the group")
        return member
