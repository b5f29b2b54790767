"""The change of a group's protocol: records, live state and deadlines.

    classic group with members  --a member of the consumer protocol joins-->          consumer group  (upgrade)
    consumer group              --the last member of the consumer protocol leaves-->  classic group   (downgrade)

`group.consumer.migration.policy` allows either. A group without members changes under every policy. The soft state
changes with the decision; if the write fails it is rebuilt from the durable state, as after a failover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.coordinator.group.classic.group import ClassicGroup, Moment
from odradek.coordinator.group.classic.rebalance import Rebalance, Records
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.conversion import by_name, downgraded, needs_its_leader, upgraded
from odradek.coordinator.group.consumer.deadlines import Deadlines
from odradek.coordinator.group.consumer.group_update import GroupUpdate
from odradek.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    epoch_record,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
)
from odradek.coordinator.group.consumer.registry import ConsumerGroups
from odradek.coordinator.group.consumer.state import (
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
)
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.coordinator.group.journal import NO_CLIENT, Journal, MemberIdentity
from odradek.coordinator.group.outcome import StoreMembers
from odradek.coordinator.group.records import group_record, group_tombstone
from odradek.coordinator.group.registry import GroupRegistry


class Change(NamedTuple):
    """The records of an operation so far, and the state to complete once they are written.

    `is_downgrade`: the group is a classic one after them.
    """

    records: Records
    pending: StoreMembers | None = None
    is_downgrade: bool = False


class Migration:
    """Removal of members, and changes of the protocol, for one shard."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        consumers: ConsumerGroups,
        classics: GroupRegistry,
        rebalance: Rebalance,
        deadlines: Deadlines,
        topics: Callable[[], TopicsView],
        journal: Journal,
    ) -> None:
        self._journal = journal
        self._config = config
        self._consumers = consumers
        self._classics = classics
        self._rebalance = rebalance
        self._deadlines = deadlines
        self._topics = topics

    # ---- upgrade

    def upgrade(self, classic: ClassicGroup, now: Moment) -> tuple[ConsumerGroup, Change]:
        """Prepare the upgrade of a classic group for a member of the consumer protocol that joins.

        Nothing changes yet: if the request is refused the classic group continues. See `retire`.

        Returns:
            The group that it joins, which is not in the registry yet, and the records that create it.
        Raises:
            ApiError: GROUP_ID_NOT_FOUND if the policy or its members do not allow the upgrade.
        """
        group_id = classic.group_id
        stored = self._classics.stored.get(group_id)
        records: Records = [] if stored is None else [group_tombstone(group_id)]
        if classic.is_in(GroupState.EMPTY):
            return self._consumers.new(group_id), Change(records)
        problem = self._why_not(classic)
        if problem is None:
            try:
                if needs_its_leader(classic):
                    problem = "its members use an assignor of their own, whose data would be lost"
                made = upgraded(classic, stored, self._topics())
            except ProtocolError:
                problem = "a member's metadata is not of the embedded consumer protocol"
        if problem is not None:
            message = f"Cannot upgrade classic group {group_id} to a consumer group: {problem}."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        return made.group, Change([*records, *made.records], StoreMembers(group_id))

    def retire(self, classic: ClassicGroup, group: ConsumerGroup, now: Moment) -> None:
        """Retire the classic group: its members learn of it with their next request, and their sessions start."""
        self._rebalance.retire(classic)
        if group.members:
            self._journal.record(group.group_id, "converted", now, NO_CLIENT, "to a consumer group: a consumer joined")
        for member_id, metadata in group.members.items():
            self._deadlines.session_renewed(group.group_id, member_id, metadata, now)

    def _why_not(self, classic: ClassicGroup) -> str | None:
        if not self._config.may_upgrade:
            return "group.consumer.migration.policy does not allow it"
        if not classic.uses_consumer_protocol:
            return "it does not use the embedded consumer protocol"
        if len(classic.members) > self._config.max_size:
            return f"it has more than the {self._config.max_size} members of group.consumer.max.size"
        return None

    # ---- removal of members, and downgrade

    def remove(self, group: ConsumerGroup, member_ids: Mapping[str, str], now: Moment, kind: str) -> Change:
        """Remove members: the others get a new target, or the group is downgraded.

        Args:
            member_ids: member id → the reason, as text.
            kind: the kind of event in the journal: left, removed.
        """
        view = self._topics()
        for member_id, reason in member_ids.items():
            self._deadlines.cancel(group.group_id, member_id)
            identity = identity_of(member_id, group.members[member_id])
            self._journal.record(group.group_id, kind, now, identity, reason, group.group_epoch.value)
            named = by_name(group.current_of(member_id).held, view)
            free = [(topic, index) for topic, ids in named.items() for index in ids]
            self._journal.released(group.group_id, free, now)
        stay = {member_id: each for member_id, each in group.members.items() if member_id not in member_ids}
        current = {member_id: group.current_of(member_id) for member_id in stay}
        generation_id = group.group_epoch.value
        change = self._maybe_downgrade(group, stay, current, now, generation_id=generation_id, rebalance=True)
        if change is not None:
            return change
        records: list[ConsumerGroupRecord] = []
        for member_id in member_ids:
            records += member_tombstones(group.group_id, member_id)
        left = {group.members[member_id].regex for member_id in member_ids} - {each.regex for each in stay.values()}
        records += [regex_tombstone(group.group_id, regex) for regex in sorted(left - {None}, key=str) if regex]
        names = [name for each in stay.values() for name in group.topics_of(each)]
        group_epoch = group.group_epoch.value + 1
        records.append(epoch_record(group.group_id, group_epoch, view.metadata_hash(names)))
        why = f"{kind}: {', '.join(member_ids)}"
        self._journal.rebalance(group.group_id, now, why, group_epoch, restart=True)
        return Change([*records], StoreMembers(group.group_id))

    def replaced(
        self, draft: GroupUpdate, member_id: str, former_id: str, step: CurrentAssignment, now: Moment
    ) -> Change:
        """A classic static member replaced another: downgrade if that was the last of the consumer protocol.

        Args:
            step: the member's assignment after this operation.
        """
        current = {each: draft.group.current_of(each) for each in draft.members if each != member_id}
        current[member_id] = step
        rebalance_completed = all(
            each.state is MemberState.STABLE and each.member_epoch == draft.group_epoch for each in current.values()
        )
        change = self._maybe_downgrade(
            draft.group, draft.members, current, now, generation_id=draft.group_epoch, rebalance=not rebalance_completed
        )
        self._deadlines.cancel(draft.group.group_id, former_id)
        return change or Change([*draft.records], StoreMembers(draft.group.group_id))

    def _maybe_downgrade(
        self,
        group: ConsumerGroup,
        members: dict[str, MemberMetadata],
        current: dict[str, CurrentAssignment],
        now: Moment,
        *,
        generation_id: int,
        rebalance: bool,
    ) -> Change | None:
        """Convert the group to a classic one with these members; None if it stays a consumer group."""
        if not members or not self._config.may_downgrade or len(members) > self._rebalance.config.max_size:
            return None
        if any(each.classic is None for each in members.values()):
            return None
        classic = downgraded(group.group_id, generation_id, members, current, self._topics(), now)
        if classic is None:
            return None
        for member_id in members:
            self._deadlines.cancel(group.group_id, member_id)
        self._classics.adopt(classic)
        reason = "to a classic group: the last consumer of the consumer protocol is gone"
        self._journal.record(group.group_id, "converted", now, NO_CLIENT, reason)
        for member in classic.members.values():
            self._rebalance.renew_session(classic, member, now)
        stored = group_record(classic, dict(classic.assignments()))
        if rebalance:
            assert stored.value is not None
            # A crash loses the rebalance that is due. The log has a generation without members, so that the
            # coordinator that loads it makes all members rejoin.
            stored.value.generation += 1
            classic.reserved_generation = stored.value.generation
        records: Records = [*group_tombstones(group), stored]
        if rebalance:
            records += self._rebalance.prepare(classic, now, "the group is one of the classic protocol again")
        return Change(records, StoreMembers(group.group_id), is_downgrade=True)

    def complete_write(self, pending: StoreMembers, error: ErrorCode, now: Moment) -> None:
        """Complete a change of protocol. After a failed write the group is unchanged but for its deadlines."""
        if error is ErrorCode.NONE:
            return
        group = self._consumers.find(pending.group_id)
        if group is not None:
            self._rebalance.retire_id(pending.group_id)
            self._deadlines.loaded(group, now)
            return
        classic = self._classics.find(pending.group_id)
        if classic is not None:
            for member in classic.members.values():
                self._rebalance.renew_session(classic, member, now)


def identity_of(member_id: str, metadata: MemberMetadata) -> MemberIdentity:
    """A member's identity in the journal."""
    return MemberIdentity(member_id, metadata.instance_id, metadata.client_id, metadata.client_host)
