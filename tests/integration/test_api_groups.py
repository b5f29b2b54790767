"""The group APIs over the wire: a rebalance of two members, commits, administration, and groups after a kill.

test_groups_as_kafka.py has every state and version, compared line by line with Kafka's responses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.clients.api_calls import Calls, error_codes, fresh_name, name_of, one
from tests.support.nodes.node import Node

only_ours = pytest.mark.only_ours


class Member(Calls):
    """A consumer that does by hand what a client library does."""

    def __init__(self, port: int, group: str) -> None:
        super().__init__(port)
        self.group = group
        self.member_id = ""
        self.generation = -1

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def introduce(self) -> None:
        """Be given a member id."""
        answer = self.request_until_loaded(ApiKey.JOIN_GROUP, 9, self.join_request())
        assert name_of(answer.error_code) == "MEMBER_ID_REQUIRED"
        self.member_id = answer.member_id

    def join(self) -> Any:
        return self.joined(self.send(ApiKey.JOIN_GROUP, 9, self.join_request()))

    def joined(self, correlation_id: int) -> Any:
        answer = self.receive(ApiKey.JOIN_GROUP, 9, correlation_id)
        assert not answer.error_code, name_of(answer.error_code)
        self.generation = answer.generation_id
        return answer

    def sync_request(self, **assigned: bytes) -> SyncGroupRequest:
        assignments = [SyncGroupRequestAssignment(member_id=key, assignment=value) for key, value in assigned.items()]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )

    def sync(self, **assigned: bytes) -> bytes:
        answer = self.request(ApiKey.SYNC_GROUP, 5, self.sync_request(**assigned))
        assert not answer.error_code, name_of(answer.error_code)
        return bytes(answer.assignment)

    def heartbeat(self) -> str:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return name_of(self.request(ApiKey.HEARTBEAT, 4, request).error_code)

    def leave(self) -> str:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        answer = self.request(ApiKey.LEAVE_GROUP, 5, request)
        return name_of(answer.error_code or one(answer.members).error_code)

    def commit(self, topic: str, offset: int, *, partition: int = 0, note: str | None = "") -> str:
        wanted = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=note
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )
        answer = self.request_until_loaded(ApiKey.OFFSET_COMMIT, 9, request)
        return name_of(one(one(answer.topics).partitions).error_code)

    def committed(self, topic: str, *partitions: int) -> dict[int, tuple[int, str | None]]:
        """(offset, note) by partition."""
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])])
        answer = self.request_until_loaded(ApiKey.OFFSET_FETCH, 9, request)
        assert not any(error_codes(answer)), answer
        found = one(one(answer.groups).topics).partitions
        return {each.partition_index: (each.committed_offset, each.metadata) for each in found}

    def state(self) -> str:
        answer = self.request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[self.group]))
        return str(one(answer.groups).group_state)


@pytest.fixture
def group(node: Node) -> str:
    name = fresh_name("group")
    with Calls(node.port) as calls:
        calls.find_coordinator(name)
    return name


@pytest.fixture
def first(node: Node, group: str) -> Iterator[Member]:
    with Member(node.port, group) as member:
        yield member


@pytest.fixture
def second(node: Node, group: str) -> Iterator[Member]:
    with Member(node.port, group) as member:
        yield member


def test_two_members_share_and_one_leaves(first: Member, second: Member) -> None:
    first.introduce()
    alone = first.join()
    assert (alone.leader, alone.generation_id, len(alone.members)) == (first.member_id, 1, 1)
    assert first.sync(**{first.member_id: b"all"}) == b"all"
    assert (first.heartbeat(), first.state()) == ("NONE", "Stable")

    second.introduce()
    joining = second.send(ApiKey.JOIN_GROUP, 9, second.join_request())
    while first.heartbeat() != "REBALANCE_IN_PROGRESS":
        time.sleep(0.01)
    both = first.join()
    followed = second.joined(joining)
    assert (both.generation_id, followed.generation_id) == (2, 2)
    assert both.leader == followed.leader == first.member_id
    assert {member.member_id for member in both.members} == {first.member_id, second.member_id}
    assert followed.members == [], "only the leader gets the list of members"
    waiting = second.send(ApiKey.SYNC_GROUP, 5, second.sync_request())
    assert first.sync(**{first.member_id: b"one", second.member_id: b"two"}) == b"one"
    assert second.receive(ApiKey.SYNC_GROUP, 5, waiting).assignment == b"two"
    assert (first.heartbeat(), second.heartbeat()) == ("NONE", "NONE")

    assert second.leave() == "NONE"
    assert second.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert first.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert first.join().generation_id == 3
    assert first.leave() == "NONE"
    assert first.state() == "Empty"


def test_a_waiting_join_keeps_the_answers_in_order(first: Member, second: Member) -> None:
    first.introduce()
    first.join()
    first.sync(**{first.member_id: b""})
    second.introduce()
    joining = second.send(ApiKey.JOIN_GROUP, 9, second.join_request())
    behind = second.send(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
    second.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        second.receive_frame()
    second.socket.settimeout(60)
    first.join()
    second.joined(joining)
    assert second.receive(ApiKey.METADATA, 9, behind).brokers


def test_commits_of_members_and_of_no_one(first: Member) -> None:
    topic = first.create_topic(3)
    assert first.committed(topic, 0, 1) == {0: (-1, ""), 1: (-1, "")}
    assert first.commit(topic, 5, note="by hand") == "NONE"
    first.introduce()
    first.join()
    first.sync(**{first.member_id: b""})
    assert first.commit(topic, 7, partition=1) == "NONE"
    assert first.commit(topic, 9, note="x" * 5000) == "OFFSET_METADATA_TOO_LARGE"
    assert first.commit(topic, 9, partition=9) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert first.committed(topic, 0, 1, 2) == {0: (5, "by hand"), 1: (7, ""), 2: (-1, "")}
    first.generation += 1
    assert first.commit(topic, 8) == "ILLEGAL_GENERATION"
    first.member_id = "somebody"
    assert first.commit(topic, 8) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 0, 1000])
def test_a_commit_may_say_how_long_it_is_kept(first: Member, retention_ms: int) -> None:
    topic = first.create_topic()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id=first.group,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    assert not any(error_codes(first.request_until_loaded(ApiKey.OFFSET_COMMIT, 3, request)))


def test_administration(first: Member) -> None:
    topic = first.create_topic()
    first.commit(topic, 5)
    listed = first.request(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states_filter=["Empty"])).groups
    mine = one([each for each in listed if each.group_id == first.group])
    assert (mine.group_state, mine.group_type) == ("Empty", "classic")

    def delete_offset() -> str:
        partition = OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(
            group_id=first.group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
        )
        answer = first.request(ApiKey.OFFSET_DELETE, 0, request)
        return name_of(answer.error_code)

    def delete_group() -> str:
        answer = first.request(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[first.group]))
        return name_of(one(answer.results).error_code)

    first.commit(topic, 6)
    assert delete_offset() == "NONE"
    assert first.committed(topic, 0) == {0: (-1, "")}
    first.commit(topic, 6)
    first.introduce()
    first.join()
    first.sync(**{first.member_id: b""})
    assert delete_group() == "NON_EMPTY_GROUP"
    first.leave()
    assert delete_group() == "NONE"
    assert delete_group() == "GROUP_ID_NOT_FOUND"
    assert first.committed(topic, 0) == {0: (-1, "")}
    assert first.state() == "Dead"


def test_find_coordinator(node: Node, first: Member) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[first.group, "other", first.group])
    answer = first.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, request)
    assert {each.key for each in answer.coordinators} == {first.group, "other"}
    assert {(each.error_code, each.node_id, each.host, each.port) for each in answer.coordinators} == {
        (0, 1, "127.0.0.1", node.port)
    }
    unknown = FindCoordinatorRequest(key_type=9, coordinator_keys=["x"])
    assert name_of(one(first.request(ApiKey.FIND_COORDINATOR, 6, unknown).coordinators).error_code) == "INVALID_REQUEST"


def test_an_offset_fetch_that_names_a_member_checks_its_epoch(first: Member) -> None:
    """KIP-848: with topics or for all, a member in an older epoch must not begin at offsets of others."""
    topic = first.create_topic()
    joining = ConsumerGroupHeartbeatRequest(
        group_id=first.group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    epoch = first.request_until_loaded(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining).member_epoch

    def fetch(member_id: str, member_epoch: int, *, all_topics: bool) -> str:
        topics = None if all_topics else [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(
            group_id=first.group, member_id=member_id, member_epoch=member_epoch, topics=topics
        )
        answer = first.request_until_loaded(ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group]))
        return name_of(one(answer.groups).error_code)

    for all_topics in (False, True):
        assert fetch("m", epoch, all_topics=all_topics) == "NONE"
        assert fetch("m", epoch + 1, all_topics=all_topics) == "STALE_MEMBER_EPOCH"
        assert fetch("other", epoch, all_topics=all_topics) == "UNKNOWN_MEMBER_ID"


@only_ours
def test_a_kill_loses_neither_members_nor_commits(own_node: Node) -> None:
    with Member(own_node.port, "kept") as member:
        member.find_coordinator("kept")
        topic = member.create_topic(2)
        member.introduce()
        member.join()
        member.sync(**{member.member_id: b"mine"})
        assert member.commit(topic, 41, note="so far") == "NONE"
        member_id, generation = member.member_id, member.generation
    own_node.kill()
    own_node.start()
    with Member(own_node.port, "kept") as member:
        member.member_id, member.generation = member_id, generation
        assert member.committed(topic, 0, 1) == {0: (41, "so far"), 1: (-1, "")}
        assert member.heartbeat() == "NONE"
        assert member.commit(topic, 42) == "NONE"
        assert member.state() == "Stable"
