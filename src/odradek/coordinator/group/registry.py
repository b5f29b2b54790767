"""All groups of one shard: the durable state of the log, and the live objects created from it.

The durable part is one `GroupMetadataValue` per group and the committed offsets; only `replay` changes it, and a failed
write reverts it. A live `ClassicGroup` is created on demand from the durable part: with the stored members, or an empty
group, or a simple one if there are only offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Member
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.consumer.registry import ConsumerGroups
from odradek.coordinator.group.offsets.store import OffsetStore
from odradek.coordinator.group.records import GroupRecord
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue
from odradek.statemachine.timeline import Timeline, TimelineDict

# Limit of groups that exist only in memory, which cost a client nothing; Kafka writes a record for each instead.
MAX_UNSTORED_GROUPS = 100_000


class GroupRegistry:
    """Group id -> live group, created on demand from the durable state."""

    def __init__(self, timeline: Timeline, offsets: OffsetStore, consumers: ConsumerGroups) -> None:
        self._consumers = consumers
        self.stored: TimelineDict[str, GroupMetadataValue] = TimelineDict(timeline)
        self._offsets = offsets
        self._live: dict[str, ClassicGroup] = {}

    def find(self, group_id: str) -> ClassicGroup | None:
        """The group; None if neither memory nor the log has it, or if it is a consumer group."""
        if self._consumers.find(group_id) is not None:
            return None
        group = self._live.get(group_id)
        if group is not None:
            return group
        value = self.stored.get(group_id)
        if value is None and not self._offsets.has_group(group_id):
            return None
        group = ClassicGroup(group_id) if value is None else from_stored(group_id, value)
        self._live[group_id] = group
        return group

    def get(self, group_id: str) -> ClassicGroup:
        """The group. Raises ApiError(GROUP_ID_NOT_FOUND)."""
        group = self.find(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def get_or_create(self, group_id: str) -> ClassicGroup:
        """Return the group; create it in memory if it is new.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE at the limit; INCONSISTENT_GROUP_PROTOCOL for a consumer group.
        """
        if self._consumers.find(group_id) is not None:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Group {group_id} is a consumer group.")
        group = self.find(group_id)
        if group is None:
            if self._is_full():
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many groups without a generation")
            group = self._live[group_id] = ClassicGroup(group_id)
        return group

    def _is_full(self) -> bool:
        """Whether the limit of groups without a stored generation or an offset is reached."""
        if len(self._live) < MAX_UNSTORED_GROUPS:
            return False
        kept = sum(group_id in self.stored or self._offsets.has_group(group_id) for group_id in self._live)
        return len(self._live) - kept >= MAX_UNSTORED_GROUPS

    def adopt(self, group: ClassicGroup) -> None:
        """Add a live group converted from a consumer group; `find` returns it after the replay of its tombstones."""
        self._live[group.group_id] = group

    def remove(self, group_id: str) -> ClassicGroup | None:
        """Remove the live group in any state; returns it."""
        return self._live.pop(group_id, None)

    def drop_if_unused(self, group: ClassicGroup) -> None:
        """Remove a live group that would be recreated unchanged: it is empty, without pending members."""
        if not group.is_in(GroupState.EMPTY) or group.pending_joins:
            return
        value = self.stored.get(group.group_id)
        if value is not None and (value.members or value.generation != group.generation_id):
            return  # the write of its empty generation failed: recreated, it would have its members again
        self._live.pop(group.group_id, None)

    def replay(self, record: GroupRecord) -> None:
        """Apply a stored generation or a removal."""
        group_id = record.key.group
        if record.value is not None:
            before = self.stored.get(group_id)
            # The generation is unchanged if members leave, or only their assignment changes.
            assert before is None or record.value.generation >= before.generation, f"{group_id}: {before.generation}"
            self.stored[group_id] = record.value
            return
        self.stored.pop(group_id, None)
        live = self._live.get(group_id)
        if live is not None:
            self.drop_if_unused(live)

    def ids(self) -> Iterator[str]:
        """All group ids, each once, in a repeatable order."""
        yield from dict.fromkeys([*self.stored, *self._offsets.group_ids(), *self._live])

    def made(self, group_id: str) -> ClassicGroup | None:
        """The live group if it was created already; never creates one."""
        return self._live.get(group_id)

    def clear(self) -> None:
        """Remove the live groups: the leadership has ended."""
        self._live.clear()


def from_stored(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Create a group from its last stored generation: Stable with members, else Empty."""
    group = ClassicGroup(group_id)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.state_timestamp_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
    for stored in value.members:
        member = Member(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
            session_timeout_ms=stored.session_timeout,
            protocol_type=value.protocol_type,
            protocols=((value.protocol or "", bytes(stored.subscription)),),
            assignment=bytes(stored.assignment),
        )
        if member.member_id not in group.members:
            group.add(member)
    if group.members:
        group.state = GroupState.STABLE
    group.refresh_subscription()
    return group
