"""Administration of groups: listing, description, offsets; and the offsets of partitions.

Functions over a `Cluster`; requests go to the group's coordinator, and are retried while it moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from odradek.client.cluster import Cluster, check
from odradek.client.connection import RequestTimeoutError, UnreachableError, UnsupportedRequestError
from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.topic_names import TopicPartition
from odradek.protocol.codec import decode_prefix
from odradek.protocol.extras import GROUP_TIMELINES_VERSION, read_timelines, timelines_field
from odradek.protocol.messages import (
    list_offsets_request,
    list_offsets_response,
    offset_commit_request,
    offset_commit_response,
    offset_delete_request,
    offset_delete_response,
    offset_fetch_request,
    offset_fetch_response,
)
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, Member
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_groups_response import DeleteGroupsResponse
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse

T = TypeVar("T")

# Special timestamps of ListOffsets. Source: KIP-79, KIP-734.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
# Later versions name topics by id.
_FIRST_OFFSET_FETCH_OF_GROUPS: Final = 8
_LAST_OFFSET_FETCH_BY_NAME: Final = 9
_LAST_OFFSET_COMMIT_BY_NAME: Final = 9
CONSUMER_PROTOCOL: Final = "consumer"


@dataclass(slots=True)
class GroupMember:
    """A member; only groups of consumers have assignments."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class GroupDescription:
    """A group; `kind` is "classic" or "consumer"."""

    group_id: str
    state: str
    kind: str
    protocol_type: str
    assignor: str
    coordinator_id: int
    members: list[GroupMember] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset: the next one that the group reads."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


async def list_groups(cluster: Cluster, *, silent: list[int] | None = None) -> list[ListedGroup]:
    """The groups of all brokers, by name.

    Args:
        silent: gets the ids of brokers that do not respond; without it they are an error.
    Raises:
        ApiError.
    """
    await cluster.metadata([])

    async def send(node_id: int) -> list[ListedGroup]:
        async def attempt() -> list[ListedGroup]:
            response = await cluster.request(ListGroupsRequest(), ListGroupsResponse, node_id=node_id)
            check(response.error_code, f"groups of broker {node_id}")
            return response.groups

        try:
            return await cluster.retried(attempt)
        except (UnreachableError, RequestTimeoutError):
            if silent is None:
                raise
            silent.append(node_id)
            return []

    answers = await asyncio.gather(*(send(node_id) for node_id in sorted(cluster.brokers)))
    return sorted((group for groups in answers for group in groups), key=lambda group: group.group_id)


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """The members of a group, and their assignments.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, and other errors of the coordinator.
    """

    async def send(node_id: int) -> GroupDescription:
        try:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            response = await cluster.request(request, ConsumerGroupDescribeResponse, node_id=node_id)
            (group,) = response.groups
            if group.error_code == 0:
                members = [_described(member) for member in group.members]
                return GroupDescription(
                    group_id, group.group_state, "consumer", CONSUMER_PROTOCOL, group.assignor_name, node_id, members
                )
            if group.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                check(group.error_code, f"group {group_id}", group.error_message)
        except UnsupportedRequestError:
            pass  # a broker from before KIP-848 has classic groups only
        return await _describe_classic(cluster, group_id, node_id)

    return await _with_coordinator(cluster, group_id, send)


def _described(member: Member) -> GroupMember:
    assigned = [(of.topic_name, index) for of in member.assignment.topic_partitions for index in of.partitions]
    return GroupMember(member.member_id, member.instance_id, member.client_id, member.client_host, assigned)


async def _describe_classic(cluster: Cluster, group_id: str, node_id: int) -> GroupDescription:
    response = await cluster.request(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse, node_id=node_id)
    (group,) = response.groups
    check(group.error_code, f"group {group_id}", group.error_message)
    if group.group_state == "Dead":
        # Before version 6 of the API an unknown group is described as a dead one.
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
    return GroupDescription(
        group_id,
        group.group_state,
        "classic",
        group.protocol_type,
        group.protocol_data,
        node_id,
        [
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                decode_assignment(member.member_assignment) if _reads_topics(group) else [],
            )
            for member in group.members
        ],
    )


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Decode a consumer's assignment of the classic protocol; empty if it is malformed."""
    if len(data) < 2:
        return []
    version = int.from_bytes(data[:2], "big", signed=True)
    known = ConsumerProtocolAssignment.VERSIONS
    if version < known.first:
        return []
    try:
        # Newer versions only append fields.
        assignment, _ = decode_prefix(ConsumerProtocolAssignment, data, min(version, known.last), 2)
    except ProtocolError:
        return []
    return [(of.topic, index) for of in assignment.assigned_partitions for index in of.partitions]


def decode_subscription(data: bytes) -> list[str]:
    """Decode the topics of a consumer's subscription of the classic protocol; empty if it is malformed."""
    if len(data) < 2:
        return []
    known = ConsumerProtocolSubscription.VERSIONS
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < known.first:
        return []
    try:
        subscription, _ = decode_prefix(ConsumerProtocolSubscription, data, min(version, known.last), 2)
    except ProtocolError:
        return []
    return subscription.topics


async def group_timeline(cluster: Cluster, group_id: str) -> dict[str, Any] | None:
    """The recent events of a group, from its coordinator; None if that is another vendor's broker.

    A group without events has an empty timeline.

    Raises:
        ApiError: errors of the coordinator.
    """

    async def send(node_id: int) -> dict[str, Any] | None:
        request = DescribeGroupsRequest(groups=[group_id], unknown_tagged_fields=[timelines_field()])
        connection = await cluster.connection_to(node_id)
        if connection.versions.get(DescribeGroupsRequest.KEY or 0, (0, 0))[1] < GROUP_TIMELINES_VERSION:
            return None
        response = await cluster.request(request, DescribeGroupsResponse, node_id=node_id)
        (group,) = response.groups
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(group.error_code, f"group {group_id}", group.error_message)
        timelines = read_timelines(response)
        if timelines is None:
            return None
        return timelines[0] if timelines else {"group": group_id, "events": []}

    return await _with_coordinator(cluster, group_id, send)


async def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group without members. Raises ApiError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ..."""

    async def send(node_id: int) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        response = await cluster.request(request, DeleteGroupsResponse, node_id=node_id)
        (result,) = response.results
        check(result.error_code, f"group {group_id}", result.error_message)

    await _with_coordinator(cluster, group_id, send)


async def committed_offsets(
    cluster: Cluster, group_id: str, *, stable: bool = False, only: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group; empty if there is no such group.

    Args:
        stable: wait for open transactions that may change them (KIP-447).
        only: of these partitions; None for all.
    Raises:
        ApiError: errors of the coordinator; UNSTABLE_OFFSET_COMMIT if such a transaction does not end.
    """
    asked: dict[str, list[int]] = {}
    for topic_name, number in only or ():
        asked.setdefault(topic_name, []).append(number)

    async def send(node_id: int) -> dict[TopicPartition, CommittedOffset]:
        connection = await cluster.connection_to(node_id)
        known = connection.versions.get(offset_fetch_request.OffsetFetchRequest.KEY or 0, (0, 0))[1]
        request = offset_fetch_request.OffsetFetchRequest(require_stable=stable)
        has_groups = known >= _FIRST_OFFSET_FETCH_OF_GROUPS
        if has_groups:
            wanted = [
                offset_fetch_request.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                for name, numbers in asked.items()
            ]
            request.groups = [
                offset_fetch_request.OffsetFetchRequestGroup(group_id=group_id, topics=None if only is None else wanted)
            ]
        else:
            request.group_id, request.topics = group_id, None
        response = await cluster.request(
            request, offset_fetch_response.OffsetFetchResponse, node_id=node_id, at_most=_LAST_OFFSET_FETCH_BY_NAME
        )
        answer = response.groups[0] if has_groups else response
        if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(answer.error_code, f"group {group_id}")
        found = {}
        for name, partition in [(topic.name, each) for topic in answer.topics for each in topic.partitions]:
            check(partition.error_code, f"group {group_id}, {name}-{partition.partition_index}")
            if partition.committed_offset >= 0:
                found[name, partition.partition_index] = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                )
        return found

    return await _with_coordinator(cluster, group_id, send)


async def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID if the group has members; the error of the first partition that failed.
    """
    topics: dict[str, offset_commit_request.OffsetCommitRequestTopic] = {}
    for (topic, index), offset in offsets.items():
        entry = topics.setdefault(topic, offset_commit_request.OffsetCommitRequestTopic(name=topic, partitions=[]))
        entry.partitions.append(
            offset_commit_request.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
        )
    request = offset_commit_request.OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))

    async def send(node_id: int) -> None:
        response = await cluster.request(
            request, offset_commit_response.OffsetCommitResponse, node_id=node_id, at_most=_LAST_OFFSET_COMMIT_BY_NAME
        )
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"group {group_id}, {topic.name}-{partition.partition_index}")

    await _with_coordinator(cluster, group_id, send)


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete a group's committed offsets of partitions; returns the error code of each.

    Raises:
        ApiError: the whole request was refused, for example because there is no such group.
    """
    topics: dict[str, offset_delete_request.OffsetDeleteRequestTopic] = {}
    for topic, index in partitions:
        entry = topics.setdefault(topic, offset_delete_request.OffsetDeleteRequestTopic(name=topic, partitions=[]))
        entry.partitions.append(offset_delete_request.OffsetDeleteRequestPartition(partition_index=index))
    request = offset_delete_request.OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

    async def send(node_id: int) -> dict[TopicPartition, int]:
        response = await cluster.request(request, offset_delete_response.OffsetDeleteResponse, node_id=node_id)
        check(response.error_code, f"group {group_id}")
        return {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }

    return await _with_coordinator(cluster, group_id, send)


async def list_offsets(cluster: Cluster, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset for a timestamp (ms, or LATEST, EARLIEST, MAX_TIMESTAMP) of each partition; -1 if there is none.

    Raises:
        ApiError: the error of the first partition that failed: LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, ...
    """

    async def attempt() -> dict[TopicPartition, int]:
        leaders = await _leaders(cluster, {topic for topic, _ in asked})
        requests: dict[int, dict[str, list_offsets_request.ListOffsetsTopic]] = {}
        for (topic, index), timestamp in asked.items():
            leader = leaders.get((topic, index))
            if leader is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {index}")
            if leader < 0:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
            topics = requests.setdefault(leader, {})
            entry = topics.setdefault(topic, list_offsets_request.ListOffsetsTopic(name=topic, partitions=[]))
            entry.partitions.append(
                list_offsets_request.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            )
        asked_of = (send(leader, list(topics.values())) for leader, topics in requests.items())
        # Wait for all requests before an error is raised: none may continue in the background.
        found: dict[TopicPartition, int] = {}
        for answer in await asyncio.gather(*asked_of, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            found |= answer
        return found

    async def send(leader: int, topics: list[list_offsets_request.ListOffsetsTopic]) -> dict[TopicPartition, int]:
        request = list_offsets_request.ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=cluster.timeout_ms)
        response = await cluster.request(request, list_offsets_response.ListOffsetsResponse, node_id=leader)
        found = {}
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"{topic.name}-{partition.partition_index}")
                found[topic.name, partition.partition_index] = partition.offset
        return found

    return await cluster.retried(attempt) if asked else {}


async def _leaders(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, int]:
    found = {}
    for topic in (await cluster.metadata(sorted(topics))).topics:
        check(topic.error_code, f"topic {topic.name}")
        for partition in topic.partitions:
            found[topic.name or "", partition.partition_index] = partition.leader_id
    return found


async def _with_coordinator(cluster: Cluster, group_id: str, send: Callable[[int], Awaitable[T]]) -> T:
    async def attempt() -> T:
        return await send(await cluster.coordinator(group_id))

    return await cluster.retried(attempt)


def _reads_topics(group: DescribedGroup) -> bool:
    return group.protocol_type == CONSUMER_PROTOCOL
