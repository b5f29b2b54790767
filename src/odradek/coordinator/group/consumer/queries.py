"""ConsumerGroupDescribe and ListGroups for consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.consumer.registry import ConsumerGroups
from odradek.coordinator.group.consumer.state import ConsumerGroup, MemberMetadata, Partitions, by_topic
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.protocol.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from odradek.protocol.messages.list_groups_response import ListedGroup

CONSUMER_TYPE = "consumer"
# Member.member_type.
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_consumer_groups(
    groups: ConsumerGroups,
    group_ids: Iterable[str],
    topics: TopicsView,
    default_assignor: str,
    is_classic: Callable[[str], bool],
) -> list[DescribedGroup]:
    """Describe the groups in the order requested; GROUP_ID_NOT_FOUND for an unknown or classic group."""
    described: list[DescribedGroup] = []
    for group_id in group_ids:
        group = groups.find(group_id)
        if group is None:
            message = f"Group {group_id} {'is not a consumer group' if is_classic(group_id) else 'not found'}."
            failed = DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
            described.append(failed)
        else:
            described.append(_describe(group, topics, default_assignor))
    return described


def preferred_assignor(members: Iterable[MemberMetadata], default: str) -> str:
    """The assignor that most members request; `default` if none does."""
    votes: dict[str, int] = {}
    for member in members:
        if member.server_assignor:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return max(sorted(votes), key=lambda name: votes[name], default=default)


def _describe(group: ConsumerGroup, topics: TopicsView, default_assignor: str) -> DescribedGroup:
    members = []
    for member_id, member in group.members.items():
        current = group.current_of(member_id)
        described = Member(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=current.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
            subscribed_topic_regex=member.regex,
            assignment=_assignment(current.assigned, topics),
            target_assignment=_assignment(group.target.get(member_id, frozenset()), topics),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )
        members.append(described)
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch.value,
        assignment_epoch=group.assignment_epoch.value,
        assignor_name=preferred_assignor(group.members.values(), default_assignor),
        members=members,
    )


def _assignment(partitions: Partitions, topics: TopicsView) -> Assignment:
    """The assignment by topic; deleted topics are omitted, because they have no name."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=ids)
            for topic_id, ids in by_topic(partitions).items()
            if topic_id in topics.by_id
        ]
    )


def list_consumer_groups(
    groups: ConsumerGroups, wanted_states: Sequence[str], wanted_types: Sequence[str]
) -> list[ListedGroup]:
    """All consumer groups in one of the states (lower case); an empty filter accepts all."""
    if wanted_types and CONSUMER_TYPE not in wanted_types:
        return []
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER_TYPE,
            group_state=group.state.value,
            group_type=CONSUMER_TYPE,
        )
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
