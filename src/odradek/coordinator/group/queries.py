"""DescribeGroups and ListGroups for classic groups.

Source: KIP-518 (state filter), KIP-848 (type filter), KIP-1043 (GROUP_ID_NOT_FOUND from DescribeGroups 6 on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Member
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.outcome import Outcome
from odradek.coordinator.group.records import CoordinatorRecord
from odradek.coordinator.group.registry import GroupRegistry
from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from odradek.protocol.messages.list_groups_response import ListedGroup
from odradek.statemachine.machine import Result

CLASSIC_TYPE = "classic"
NOT_FOUND_VERSION = 6


def describe_groups(
    groups: GroupRegistry, group_ids: Iterable[str], api_version: int, is_consumer: Callable[[str], bool]
) -> Result[CoordinatorRecord, Outcome[list[DescribedGroup]]]:
    """Describe the groups in the order requested; an unknown one is "Dead", and from version 6 on an error too."""
    described: list[DescribedGroup] = []
    for group_id in group_ids:
        group = groups.find(group_id)
        if group is not None:
            described.append(_describe(group))
            continue
        dead = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= NOT_FOUND_VERSION:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            problem = "is not a classic group" if is_consumer(group_id) else "not found"
            dead.error_message = f"Group {group_id} {problem}."
        described.append(dead)
    return Result([], Outcome(described))


def _describe(group: ClassicGroup) -> DescribedGroup:
    """Metadata and protocol are shown only for a Stable group: during a rebalance they are about to change."""
    stable = group.is_in(GroupState.STABLE)
    name = (group.protocol_name or "") if stable else ""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=name,
        members=[_member(member, member.metadata(name) if stable else b"") for member in group.members.values()],
    )


def _member(member: Member, metadata: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=member.assignment,
    )


def list_classic_groups(
    groups: GroupRegistry, wanted_states: Sequence[str], wanted_types: Sequence[str]
) -> list[ListedGroup]:
    """All classic groups in one of the states (lower case); an empty filter accepts all."""
    if wanted_types and CLASSIC_TYPE not in wanted_types:
        return []
    listed: list[ListedGroup] = []
    for group_id in groups.ids():
        group = groups.find(group_id)
        if group is None or (wanted_states and group.state.value.lower() not in wanted_states):
            continue
        listed.append(
            ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC_TYPE,
            )
        )
    return listed
