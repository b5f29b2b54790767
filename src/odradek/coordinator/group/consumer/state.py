"""The durable state of a consumer group (KIP-848): members, target assignment and current assignment.

Three epochs drive it. The group epoch rises when an input of the assignment changes: a member, a subscription, a
topic. The assignment epoch is the group epoch of the target assignment. Each member epoch follows the assignment
epoch once the member has revoked the partitions that are not in its target; a partition is given to its next owner
only after the previous one has confirmed that it stopped.

    STABLE                nothing to do in this epoch
    UNREVOKED_PARTITIONS  the member must revoke partitions, and has not confirmed it
    UNRELEASED_PARTITIONS it waits for partitions that others have not revoked

All of it is durable and only `replay` changes it. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from uuid import UUID

from odradek.statemachine.timeline import Timeline, TimelineDict, TimelineValue

# (topic id, partition id)
Partitions = frozenset[tuple[UUID, int]]
NO_PARTITIONS: Partitions = frozenset()

# The first group epoch and assignment epoch: an empty assignment, for members that join before the first one is made.
# 0 has another meaning (KIP-1263).
INITIAL_EPOCH = 1
# A member that does not report owned partitions gets its assignment in this many answers of a new coordinator: the last
# answer of the previous coordinator may have been lost. The other value: in all answers until the member owns it.
RESEND_COUNT = 3
RESEND_UNTIL_OWNED = -1
# Member epochs with special meaning.
JOINING_EPOCH = 0
LEAVING_FOR_A_WHILE_EPOCH = -2  # a static member that will return


class MemberState(IntEnum):
    """A member's progress towards its target; the numbers are those of the stored record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ConsumerGroupState(Enum):
    """A group's state; the value is Kafka's name on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """Metadata of a member of the classic protocol, beside its subscription.

    Attributes:
        protocols: name and subscription of each supported assignor, most preferred first; never empty.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member's metadata. `classic` is None for the consumer protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """A member's current assignment. It still owns the partitions that it must revoke (`pending_revocation`).

    Attributes:
        epochs: the member epoch in which it got each of its partitions (KIP-1251).
    """

    member_epoch: int = JOINING_EPOCH
    previous_member_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    epochs: Mapping[tuple[UUID, int], int] = field(default_factory=dict)

    @property
    def held(self) -> Partitions:
        """All partitions that no other member may get yet."""
        return self.assigned | self.pending_revocation


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched, at one version of the metadata."""

    topic_names: tuple[str, ...]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """One group; see the module docstring."""

    def __init__(self, group_id: str, timeline: Timeline) -> None:
        self.group_id = group_id
        self.group_epoch: TimelineValue[int] = TimelineValue(timeline, INITIAL_EPOCH)
        self.metadata_hash: TimelineValue[int] = TimelineValue(timeline, 0)
        self.assignment_epoch: TimelineValue[int] = TimelineValue(timeline, INITIAL_EPOCH)
        # Wall-clock time in ms of the target assignment; 0 if there is none.
        self.assignment_timestamp_ms: TimelineValue[int] = TimelineValue(timeline, 0)
        self.members: TimelineDict[str, MemberMetadata] = TimelineDict(timeline)
        self.current: TimelineDict[str, CurrentAssignment] = TimelineDict(timeline)
        self.target: TimelineDict[str, Partitions] = TimelineDict(timeline)
        self.regexes: TimelineDict[str, ResolvedRegex] = TimelineDict(timeline)
        self.static_members: TimelineDict[str, str] = TimelineDict(timeline)
        self.owners: TimelineDict[tuple[UUID, int], str] = TimelineDict(timeline)
        # The version of the topics for which `metadata_hash` was last verified; soft. A revert of the hash reverts
        # it too.
        self.checked_version: TimelineValue[int] = TimelineValue(timeline, -1)
        # The version of the topics that each regular expression was last matched against; soft, and reverted too.
        self.matched_versions: TimelineDict[str, int] = TimelineDict(timeline)
        # Member id → how many more answers contain its unchanged assignment: 0 after it reported to own it,
        # RESEND_UNTIL_OWNED if it must report that first; soft, and reverted too. Members that this coordinator has not
        # answered yet are missing.
        self.resend_counts: TimelineDict[str, int] = TimelineDict(timeline)

    @property
    def state(self) -> ConsumerGroupState:
        """The state in ConsumerGroupDescribe and ListGroups."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch.value > self.assignment_epoch.value:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch.value
        for member_id in self.members:
            current = self.current_of(member_id)
            if current.state is not MemberState.STABLE or current.member_epoch != epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def current_of(self, member_id: str) -> CurrentAssignment:
        """The member's current assignment; empty at epoch 0 if none is stored."""
        return self.current.get(member_id) or CurrentAssignment()

    def is_free(self, partition: tuple[UUID, int], *member_ids: str | None) -> bool:
        """Whether no member except these has the partition."""
        holder = self.owners.get(partition)
        return holder is None or holder in member_ids

    @property
    def classic_members(self) -> dict[str, ClassicMetadata]:
        """The members of the classic protocol."""
        return {member_id: each.classic for member_id, each in self.members.items() if each.classic is not None}

    def topics_of(self, member: MemberMetadata) -> Iterator[str]:
        """The topics that a member subscribes to, by name and by its regular expression."""
        yield from member.topic_names
        if member.regex is not None and (resolved := self.regexes.get(member.regex)) is not None:
            yield from resolved.topic_names

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may consume `topic`."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    def assignment_delay_ms(self, interval_ms: int, now_ms: int) -> int:
        """Time in ms until the next assignment may be made, so that several changes cause one assignment (KIP-1263).

        It is 0 for a group that had no member, or whose members were assigned nothing: their topics are new, or their
        regular expressions were not matched yet. It is also 0 if the last assignment is of the future, because the
        clock was set back.
        """
        age_ms = now_ms - self.assignment_timestamp_ms.value
        is_recent = self.members and 0 <= age_ms < interval_ms
        return interval_ms - age_ms if is_recent and any(self.target.values()) else 0

    def must_send_assignment(
        self, member_id: str, assigned: Partitions, owned: Partitions | None, changed: bool
    ) -> bool:
        """Whether the answer to a heartbeat contains the assignment; records what the member then knows.

        An answer can be lost, and clients differ in their reaction: librdkafka continues as if it had sent nothing. So
        the assignment is sent until the member reports to own it. Each member that another coordinator answered last
        gets it RESEND_COUNT times: most own it, and do not report it again. Kafka sends it once; a member that did not
        get it is removed at the end of its rebalance timeout, or never reads its new partitions.

        Args:
            assigned: the member's present assignment.
            owned: the partitions that the member reports as owned; None if it reports none.
            changed: whether this heartbeat changed its assignment.
        """
        before = self.resend_counts.get(member_id)
        left = RESEND_COUNT if before is None else before
        if owned == assigned:
            after = 0
        elif changed or left == RESEND_UNTIL_OWNED:
            after = RESEND_UNTIL_OWNED
        else:
            after = max(0, left - 1)
        if after != before:
            self.resend_counts[member_id] = after
        return changed or (left != 0 and owned != assigned)

    # ---- replay

    def put_member(self, member_id: str, member: MemberMetadata) -> None:
        before = self.members.get(member_id)
        if before is not None and before.instance_id != member.instance_id:
            self._release_instance(member_id, before)
        self.members[member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def drop_member(self, member_id: str) -> None:
        self.resend_counts.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release_instance(member_id, member)

    def _release_instance(self, member_id: str, member: MemberMetadata) -> None:
        # A static member that returned under a new id has replaced this one already.
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        self._release(member_id)
        self.current[member_id] = current
        for partition in sorted(current.assigned | current.pending_revocation, key=_order):
            self.owners[partition] = member_id

    def drop_current(self, member_id: str) -> None:
        self._release(member_id)
        self.current.pop(member_id, None)

    def _release(self, member_id: str) -> None:
        before = self.current.get(member_id)
        if before is not None:
            for partition in sorted(before.assigned | before.pending_revocation, key=_order):
                if self.owners.get(partition) == member_id:
                    del self.owners[partition]


def _order(partition: tuple[UUID, int]) -> tuple[int, int]:
    return partition[0].int, partition[1]


def in_order(partitions: Partitions) -> list[tuple[UUID, int]]:
    """Partitions by topic id and partition id, so that iteration has the same order in every run."""
    return sorted(partitions, key=_order)


def by_topic(partitions: Partitions) -> dict[UUID, list[int]]:
    """Partition ids of each topic, both in order."""
    grouped: dict[UUID, list[int]] = {}
    for topic_id, partition_id in in_order(partitions):
        grouped.setdefault(topic_id, []).append(partition_id)
    return grouped
