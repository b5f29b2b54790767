"""Hostile requests of an unknown client to the group coordinator: large subscriptions, metadata, many groups, and the
largest group that the promises speak of. A refused request leaves nothing behind."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

import pytest
from confluent_kafka import TopicCollection

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import admin, create_topic
from tests.support.clients.wire import Wire
from tests.support.models.group_client import GroupClient
from tests.support.models.mixed_groups import subscription_bytes
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 45_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("bad"), SETTINGS) as node:
        yield node


@pytest.fixture
def client(own: Node) -> Iterator[GroupClient]:
    reported = GroupClient(own.port)
    reported.prepare()
    yield reported
    reported.wire.close()


def beat(
    client: GroupClient,
    group: str,
    member: str,
    epoch: int,
    topics: list[str],
    owned: list[TopicPartitions] | None = None,
) -> tuple[ErrorCode, int, set[tuple[UUID, int]] | None]:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms, request.topic_partitions, request.subscribed_topic_names = 60_000, [], topics
    else:
        request.topic_partitions = owned
    answer = client.wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    if answer.assignment is None:
        return ErrorCode(answer.error_code), answer.member_epoch, None
    given = {(topic.topic_id, p) for topic in answer.assignment.topic_partitions for p in topic.partitions}
    return ErrorCode(answer.error_code), answer.member_epoch, given


def listed(client: GroupClient) -> set[str]:
    return {each.group_id for each in client.wire.request(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups}


@pytest.mark.parametrize("length", [10, 240])
def test_ten_thousand_topics_in_one_subscription(own: Node, client: GroupClient, length: int) -> None:
    """10,000 short names are taken; long ones are no record that the log takes, and the group is not there then."""
    topics = [f"{number:05}-".ljust(length, "x") for number in range(10_000)]
    group = f"wide-{length}"
    code, epoch, _ = beat(client, group, "m", 0, topics)
    assert code is (ErrorCode.NONE if length == 10 else ErrorCode.UNKNOWN_SERVER_ERROR)
    described = client.wire.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=[group]))
    if code is ErrorCode.NONE:
        assert len(described.groups[0].members[0].subscribed_topic_names) == 10_000
        assert beat(client, group, "m", epoch, topics)[0] is ErrorCode.NONE
        assert beat(client, group, "m", -1, topics)[0] is ErrorCode.NONE
    else:
        assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    classic = f"classic-{length}"
    joined = client.enter("wide", classic, protocols=[("range", subscription_bytes(topics))])
    assert joined.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if length == 240 else ErrorCode.NONE)
    if length == 10:
        client.sync("wide", classic, joined.member_id, 1, assign=[joined.member_id])
        assert "NONE" in client.lines[-1], client.lines[-1]
        client.leave("wide", classic, (joined.member_id, None))
    client.delete_groups("wide", classic)
    assert classic not in listed(client)


def test_ten_megabytes_of_metadata(own: Node, client: GroupClient) -> None:
    """Kafka's strings end at 32,767 bytes; a longer one is not a request, and ends the connection."""
    before = own.memory_bytes()
    assert client.commit_code("noted", 1, metadata="x" * 32_000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="mark")
    topic = OffsetCommitRequestTopic(name="topic", partitions=[partition])
    body = encode(OffsetCommitRequest(group_id="noted", topics=[topic]), 8)
    assert body.count(b"\x05mark") == 1
    huge = body.replace(b"\x05mark", b"\x81\xad\xe2\x04" + b"x" * 10_000_000)
    header = struct.pack(">hhih4s", ApiKey.OFFSET_COMMIT, 8, 1, 4, b"test") + b"\0"
    for _ in range(5):
        with Wire(own.port) as wire:
            wire.socket.sendall(struct.pack(">i", len(header) + len(huge)) + header + huge)
            assert wire.is_closed_by_peer()
    assert "noted" not in listed(client)
    assert own.memory_bytes() - before < 100_000_000


@pytest.mark.parametrize("protocols", [1, 12], ids=["one protocol", "twelve protocols"])
def test_metadata_of_members_that_no_record_could_hold(own: Node, client: GroupClient, protocols: int) -> None:
    """A member is refused as it joins where its generation could never be stored, and leaves nothing behind."""
    before = own.memory_bytes()
    size = 10_000_000 // protocols
    offered = [(f"range-{number}", b"m" * size) for number in range(protocols)]
    for number in range(20):
        answer = client.join("large", f"large-{number}", "", 3, protocols=offered)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not any(each.startswith("large-") for each in listed(client))
    assert own.memory_bytes() - before < 80_000_000


def test_commits_for_a_topic_that_was_deleted(own: Node, client: GroupClient) -> None:
    """They are refused by name and by id, and its namesake begins with nothing of what was committed for it."""
    admin_client, group = admin(own.bootstrap), "of-what-is-gone"
    create_topic(own.bootstrap, "mortal", 1)
    old_id = admin_client.describe_topics(TopicCollection(["mortal"]))["mortal"].result(90).topic_id
    topic_id = UUID(
        int=(old_id.get_most_significant_bits() % 2**64 << 64) | old_id.get_least_significant_bits() % 2**64
    )
    assert client.commit_code(group, 5, topic="mortal") == ErrorCode.NONE
    assert client.commit_code(group, 6, version=10, topic_id=topic_id) == ErrorCode.NONE
    admin_client.delete_topics(["mortal"])["mortal"].result(90)
    eventually(lambda: client.commit_code(group, 7, topic="mortal") != ErrorCode.NONE)
    assert client.commit_code(group, 7, topic="mortal") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit_code(group, 7, version=10, topic_id=topic_id) == ErrorCode.UNKNOWN_TOPIC_ID
    create_topic(own.bootstrap, "mortal", 1)
    client.fetch("namesake", group, topic="mortal")
    assert "(0, -1, -1, '', 'NONE')" in client.lines[-1], client.lines[-1]
    assert client.commit_code(group, 7, version=10, topic_id=topic_id) == ErrorCode.UNKNOWN_TOPIC_ID
    client.fetch("of nothing", group, everything=True)
    assert "mortal" not in client.lines[-1] and "[]" in client.lines[-1], client.lines[-1]


def test_names_with_control_characters_are_shown_harmlessly(own: Node, client: GroupClient) -> None:
    name, shown_as = "evil\x1b[2J\r\nname\x9b31m\x00", r"evil\x1b[2J\r\nname\x9b31m\x00"
    assert client.commit_code(name, 7) == 0
    joined = client.join("evil", name, instance=name)
    assert joined.error_code == ErrorCode.NONE
    assert client.join("evil", name, "stolen", instance=name).error_code == ErrorCode.FENCED_INSTANCE_ID

    def shows(*arguments: str) -> None:
        ended = odradek(own.bootstrap, "groups", *arguments, code=None)
        shown = ended.out + ended.err
        assert not {each for each in shown if not each.isprintable()} - {"\n"}, arguments
        assert "--json" in arguments or shown_as in shown, arguments

    for arguments in (["list"], ["list", "--json"], ["describe", "--group", name], ["explain", name]):
        shows(*arguments)
    shows("delete", "--group", name)  # it has a member
    assert name in {each["group"] for each in odradek(own.bootstrap, "groups", "list", "--json").json}
    client.leave("evil", name, ("", name))
    shows("delete", "--group", name)
    assert name not in listed(client)


@pytest.mark.timeout(1800)  # 300,000 requests one after the other
@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_groups_that_no_one_is_in(own: Node, client: GroupClient, count: int) -> None:
    """Ids that are asked for, invented, and refused: none of them is a group."""
    known = listed(client)
    before = own.memory_bytes()
    for number in range(count):
        group = f"invented-{number}"
        code, _, _ = beat(client, group, "m", 3, [])
        assert code is ErrorCode.GROUP_ID_NOT_FOUND
        assert client.commit_code(group, 1, member="m", generation=3) == ErrorCode.GROUP_ID_NOT_FOUND
        client.heartbeat("invented", group, "m", 1)
        assert "UNKNOWN_MEMBER_ID" in client.lines.pop()
    assert listed(client) == known
    assert own.memory_bytes() - before < 30_000_000


def test_fifty_members_rebalance_two_hundred_partitions_incrementally(own: Node, client: GroupClient) -> None:
    create_topic(own.bootstrap, "wide", 200)
    members = {f"m{number:02}": 0 for number in range(50)}
    has: dict[str, set[tuple[UUID, int]]] = {member: set() for member in members}
    reported: dict[str, set[tuple[UUID, int]]] = dict(has)

    def turn() -> None:
        """Each member sends one heartbeat, having done what the last response asked."""
        for member, epoch in members.items():
            has[member] = reported[member]
            topics: dict[UUID, list[int]] = {}
            for topic_id, partition in sorted(has[member]):
                topics.setdefault(topic_id, []).append(partition)
            owned = [TopicPartitions(topic_id=topic_id, partitions=ids) for topic_id, ids in topics.items()]
            code, members[member], given = beat(client, "fifty", member, epoch, ["wide"], owned)
            assert code is ErrorCode.NONE
            if given is not None:
                reported[member] = given
                has[member] &= given  # what it must give up it gives up at once
            everything = [each for of in has.values() for each in of]
            assert len(everything) == len(set(everything)), "two own one"

    def each_owns_four() -> bool:
        turn()
        return {len(of) for of in has.values()} == {4}

    eventually(each_owns_four, pause_s=0)
    before = {member: set(of) for member, of in has.items()}
    more = CreatePartitionsTopic(name="wide", count=201, assignments=None)
    answer = client.wire.request(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[more], timeout_ms=30_000))
    assert answer.results[0].error_code == ErrorCode.NONE, answer

    def the_last_is_assigned() -> bool:
        turn()
        assert all(before[member] <= has[member] for member in members), "a member had to revoke a partition"
        return sum(len(of) for of in has.values()) == 201

    eventually(the_last_is_assigned, pause_s=0)
    assert sorted(len(of) for of in has.values()) == [4] * 49 + [5]
