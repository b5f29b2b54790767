"""The update of a consumer group by one operation: its state after the records are replayed, and these records.

    put the member -> match its regular expression -> new group epoch if something changed -> new target assignment
    if the epoch is ahead, and the last target is old enough -> one step of this member towards its target

A new expression takes effect with the member's next heartbeat, as in Kafka, which matches it after the answer: the
topics subscribed by name come first, and clients expect an assignment with them alone.

Both protocols use it: they differ in how a member sends its subscription, and how it receives its assignment.
Source: KIP-848, KIP-1263; Kafka GroupMetadataManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.consumer.assignors import ASSIGNORS, Subscriber
from odradek.coordinator.group.consumer.queries import preferred_assignor
from odradek.coordinator.group.consumer.reconcile import next_assignment
from odradek.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from odradek.coordinator.group.consumer.regex import EVERY_TOPIC, TopicFilter, TopicMatches
from odradek.coordinator.group.consumer.state import (
    NO_PARTITIONS,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    Partitions,
    ResolvedRegex,
    in_order,
)
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.coordinator.group.journal import Journal

Records = list[ConsumerGroupRecord]


@dataclass(slots=True)
class GroupUpdate:
    """See the module docstring. `group` itself is not changed.

    Attributes:
        interval_ms: minimum age of the target assignment before the next one is made.
        may_describe: which topics a regular expression may match, by its member's permissions.
        delay_ms: time until the next target assignment; 0 if none is due.
        is_unresolved: the member's expression is new to the group and takes effect next time.
    """

    group: ConsumerGroup
    view: TopicsView
    default_assignor: str
    now_ms: int
    interval_ms: int = 0
    matches: TopicMatches = field(default_factory=TopicMatches)
    may_describe: TopicFilter = EVERY_TOPIC
    delay_ms: int = field(init=False, default=0)
    members: dict[str, MemberMetadata] = field(init=False)
    regexes: dict[str, ResolvedRegex] = field(init=False)
    target: dict[str, Partitions] = field(init=False)
    group_epoch: int = field(init=False)
    assignment_epoch: int = field(init=False)
    records: Records = field(default_factory=list)
    # The reason for a new group epoch; empty if there is none.
    cause: str = ""
    is_unresolved: bool = field(init=False, default=False)
    # Whether the member's subscribed topics have changed.
    _changed: bool = field(init=False, default=False)
    # Whether the matches of its expression take effect in this operation.
    _resolved: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        group = self.group
        self.members = dict(group.members)
        self.regexes = dict(group.regexes)
        self.target = dict(group.target)
        self.group_epoch = group.group_epoch.value
        self.assignment_epoch = group.assignment_epoch.value
        assert self.assignment_epoch <= self.group_epoch, f"{group.group_id}: {self.assignment_epoch} is assigned"

    def replace_static(self, old_id: str, new_id: str) -> None:
        """Replace a static member's old id by its new one; it keeps its state."""
        self.members[new_id] = self.members.pop(old_id)
        self.target[new_id] = self.target.pop(old_id, NO_PARTITIONS)
        group_id = self.group.group_id
        self.records += member_tombstones(group_id, old_id)
        self.records.append(target_record(group_id, new_id, self.target[new_id]))

    def put(self, member_id: str, before: MemberMetadata | None, metadata: MemberMetadata) -> None:
        """Add or update a member, with all consequences for the group.

        Args:
            before: its metadata until now; None for a new member.
        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        if metadata != before or member_id not in self.group.members:
            self.records.append(member_record(self.group.group_id, member_id, metadata))
        self.members[member_id] = metadata
        self._resolve_regexes(before, metadata)
        self._maybe_bump(member_id, before, metadata)
        if self.group_epoch > self.assignment_epoch:
            self.delay_ms = self.group.assignment_delay_ms(self.interval_ms, self.now_ms)
            if not self.delay_ms:
                self._assign()

    def step(
        self, member_id: str, current: CurrentAssignment, owned: Partitions | None, former_id: str | None = None
    ) -> CurrentAssignment:
        """Move a member one step towards its target; returns its assignment.

        Args:
            current: its assignment so far.
            owned: the partitions that the member reports as owned; None if it reports none.
            former_id: the previous id of a static member.
        """
        target, unsubscribed = self.target.get(member_id, NO_PARTITIONS), NO_PARTITIONS
        if self.delay_ms:
            # The target may be of earlier subscriptions.
            wanted = self._topic_ids(self.members[member_id])
            target = frozenset(each for each in target if each[0] in wanted)
            if self._changed:
                unsubscribed = frozenset(each for each in current.assigned if each[0] not in wanted)
        after = next_assignment(
            current,
            target=target,
            target_epoch=self.assignment_epoch,
            owned=owned,
            is_free=lambda partition: self.group.is_free(partition, member_id, former_id),
            unsubscribed=unsubscribed,
        )
        for partition in after.assigned - current.assigned:
            assert self.group.is_free(partition, member_id, former_id), f"{partition} has an owner"
        if after != current or member_id not in self.group.members:
            self.records.append(current_record(self.group.group_id, member_id, after))
        return after

    def record_in_journal(
        self, journal: Journal, now: Moment, before: CurrentAssignment, after: CurrentAssignment
    ) -> None:
        """Record the step in the journal: the new epoch, revoked and assigned partitions."""
        group_id = self.group.group_id
        if self.cause:
            journal.rebalance(group_id, now, self.cause, self.group_epoch, restart=True)
        journal.released(group_id, self.names(before.held - after.held), now)
        journal.assigned(group_id, self.names(after.assigned - before.assigned), now, self.assignment_epoch)

    def names(self, partitions: Partitions) -> list[tuple[str, int]]:
        """Partitions by name, in order; those of deleted topics are omitted."""
        by_id = self.view.by_id
        return [(by_id[topic_id].name, index) for topic_id, index in in_order(partitions) if topic_id in by_id]

    # ---- what follows

    def _topic_names(self, member: MemberMetadata) -> list[str]:
        resolved = self.regexes.get(member.regex) if member.regex is not None else None
        return [*member.topic_names, *(resolved.topic_names if resolved is not None else ())]

    @property
    def _version(self) -> int:
        """Rises when an expression may match other topics: with changes of topics and of permissions."""
        return self.view.version + self.may_describe.version

    def _resolve_regexes(self, before: MemberMetadata | None, metadata: MemberMetadata) -> None:
        """Match the member's regular expression against the present topics; remove an expression without users."""
        group, regex, left = self.group, metadata.regex, before.regex if before is not None else None
        if regex is not None:
            self._resolve_regex(regex, is_new=regex != left)
        if left is not None and left != regex and all(each.regex != left for each in self.members.values()):
            self.regexes.pop(left, None)
            group.matched_versions.pop(left, None)
            self.records.append(regex_tombstone(group.group_id, left))

    def _resolve_regex(self, regex: str, *, is_new: bool) -> None:
        """`is_new`: the member did not have this expression before."""
        group, known = self.group, self.regexes.get(regex)
        if known is not None and group.matched_versions.get(regex) == self._version:
            return
        matching = self.matches.topics(regex, self.view)  # raises if the expression is invalid
        names = tuple(filter(self.may_describe.allows, matching))
        if known is None and is_new:
            self.is_unresolved = True
        elif known is not None and known.topic_names == names:
            # The write of the record may fail: the version is stored only if the log already has these matches.
            group.matched_versions[regex] = self._version
        else:
            self._resolved = known is None
            self.regexes[regex] = ResolvedRegex(names, self.view.version, self.now_ms)
            self.records.append(regex_record(group.group_id, regex, self.regexes[regex]))

    def _maybe_bump(self, member_id: str, before: MemberMetadata | None, metadata: MemberMetadata) -> None:
        """Start a new group epoch if a subscription, or a subscribed topic, has changed."""
        group = self.group
        changed = self._changed = self._subscribes_otherwise(before, metadata)
        if not changed and (self.is_unresolved or group.checked_version.value == self._version):
            return
        names = [name for member in self.members.values() for name in self._topic_names(member)]
        metadata_hash = self.view.metadata_hash(names)
        if not changed and metadata_hash == group.metadata_hash.value:
            group.checked_version.value = self._version
            return
        self.group_epoch += 1
        if before is None:
            self.cause = f"member {member_id} joined"
        elif self._resolved:
            self.cause = f"the regular expression of member {member_id} was matched"
        elif changed:
            self.cause = f"member {member_id} subscribes to other topics"
        else:
            self.cause = "a topic that is subscribed to was made, deleted, grew, or moved"
        self.records.append(epoch_record(group.group_id, self.group_epoch, metadata_hash))

    def _subscribes_otherwise(self, before: MemberMetadata | None, metadata: MemberMetadata) -> bool:
        """Whether the subscription has changed. Until a new expression takes effect, the old one's topics stay."""
        if before is None or set(before.topic_names) != set(metadata.topic_names):
            return True
        return self._resolved or (before.regex != metadata.regex and not self.is_unresolved)

    def _topic_ids(self, member: MemberMetadata) -> frozenset[UUID]:
        topics = (self.view.by_name.get(name) for name in self._topic_names(member))
        return frozenset(topic.topic_id for topic in topics if topic is not None)

    def _assign(self) -> None:
        """Make a target for the present group epoch, with a record for each member whose target changes."""
        view = self.view
        subscribers: dict[str, Subscriber] = {}
        for member_id, member in self.members.items():
            subscribers[member_id] = Subscriber(
                self._topic_ids(member),
                self.target.get(member_id, NO_PARTITIONS),
                member.instance_id,
                member.rack_id,
            )
        wanted = {topic_id for each in subscribers.values() for topic_id in each.topic_ids}
        assign = ASSIGNORS[preferred_assignor(self.members.values(), self.default_assignor)]
        assigned = assign(subscribers, {topic_id: view.by_id[topic_id] for topic_id in sorted(wanted)})
        group_id = self.group.group_id
        count = sum(len(partitions) for partitions in assigned.values())
        assert len(frozenset().union(*assigned.values())) == count, f"{group_id}: a partition is assigned twice"
        for member_id, partitions in assigned.items():
            if self.target.get(member_id) != partitions:
                self.records.append(target_record(group_id, member_id, partitions))
                self.target[member_id] = partitions
        self.assignment_epoch = self.group_epoch
        self.records.append(target_epoch_record(group_id, self.assignment_epoch, self.now_ms))
