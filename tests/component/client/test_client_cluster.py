"""A cluster: addresses, failing over, where requests go, and asking again while there is time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from odradek.client import admin, groups, transactions
from odradek.client.cluster import Cluster, check, parse_bootstrap
from odradek.client.connection import Connection, UnreachableError
from odradek.client.login import RefusedLoginError
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Clock
from odradek.common.real_io import RealClock, RealNetwork
from odradek.protocol.api_key import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

from .conftest import ScriptedPeer


def cluster_of(*peers: ScriptedPeer, clock: Clock | None = None) -> Cluster:
    return Cluster(RealNetwork(), clock or RealClock(), [peer.address for peer in peers], timeout_ms=60_000)


class Leaps(RealClock):
    """A clock by which fifteen seconds pass from each look to the next."""

    def __init__(self) -> None:
        self._looks = itertools.count()

    def monotonic_ms(self) -> int:
        return next(self._looks) * 15_000


def metadata(*peers: ScriptedPeer, topics: list[MetadataResponseTopic] | None = None) -> Any:
    brokers = [
        MetadataResponseBroker(node_id=node, host="127.0.0.1", port=peer.port) for node, peer in enumerate(peers)
    ]
    return lambda request, version: MetadataResponse(brokers=brokers, cluster_id="c", topics=topics or [])


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", ",", ":9092", "a:b", "a:0", "a:65536", "a:-1"])
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port"):
        parse_bootstrap(text)


def test_an_error_code_says_what_it_is_about() -> None:
    check(0, "topic t")
    with pytest.raises(ApiError, match="topic t: unknown topic or partition"):
        check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t")
    with pytest.raises(ApiError, match="error code 9999") as caught:
        check(9999, "topic t")
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_the_next_bootstrap_address_is_tried(peer: ScriptedPeer, second_peer: ScriptedPeer) -> None:
    second_peer.on(ApiKey.METADATA, metadata(second_peer))
    await peer.stop()
    async with cluster_of(peer, second_peer) as cluster:
        assert (await cluster.metadata([])).cluster_id == "c"


async def test_another_broker_is_preferred_from_then_on(peer: ScriptedPeer, second_peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, metadata(peer, second_peer))
    second_peer.on(ApiKey.METADATA, metadata(peer, second_peer))
    async with cluster_of(peer) as cluster:
        await cluster.metadata()
        await cluster.prefer_another_broker()
        await cluster.metadata()
        assert [(await cluster.any_connection()).version_for(ApiKey.METADATA) > 0, second_peer.connections] == [True, 1]
        assert [key for key, _, _ in second_peer.asked].count(ApiKey.METADATA) == 1
        await second_peer.stop()
        await cluster.prefer_another_broker()  # what is not reached is not waited for
        await cluster.metadata()
        assert peer.connections == 1


async def test_another_broker_that_refuses_us_changes_nothing(
    peer: ScriptedPeer, second_peer: ScriptedPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.on(ApiKey.METADATA, metadata(peer, second_peer))
    async with cluster_of(peer) as cluster:
        await cluster.metadata()
        connection = cluster._connection

        async def refused(address: tuple[str, int]) -> Connection:
            if address == second_peer.address:
                raise RefusedLoginError("its certificate is of another host")
            return await connection(address)

        monkeypatch.setattr(cluster, "_connection", refused)
        await cluster.prefer_another_broker()
        await cluster.metadata()
        assert (peer.connections, second_peer.connections) == (1, 0)


async def test_one_login_serves_two_sets_of_connections(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, metadata(peer))
    async with cluster_of(peer) as cluster, cluster.with_own_connections() as other:
        await cluster.metadata()
        await other.metadata()
        assert peer.connections == 2
        assert other._security is cluster._security


async def test_no_address_responds(peer: ScriptedPeer) -> None:
    await peer.stop()
    async with cluster_of(peer) as cluster:
        with pytest.raises(UnreachableError, match="connection refused"):
            await cluster.metadata([])


async def test_a_connection_is_made_once_and_again_when_it_was_lost(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, metadata(peer))
    async with cluster_of(peer) as cluster:
        for _ in range(3):
            await cluster.metadata([])
        assert peer.connections == 1
        await peer.hang_up()
        # Requests in flight when the connection broke are lost; later ones are not.
        with pytest.raises(UnreachableError):
            await cluster.metadata([])
        assert (await cluster.metadata([])).cluster_id == "c"
        assert peer.connections == 2


async def test_a_broker_that_the_cluster_does_not_have(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, metadata(peer))
    async with cluster_of(peer) as cluster:
        with pytest.raises(ApiError, match="no broker 9") as caught:
            await cluster.connection_to(9)
        assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_requests_are_retried_after_retriable_errors(peer: ScriptedPeer) -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def answer(request: Any, version: int) -> Any:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=codes.pop(0))])

    peer.on(ApiKey.CREATE_TOPICS, answer)
    async with cluster_of(peer) as cluster:
        assert (await admin.create_topic(cluster, "t", partitions=1)).name == "t"
    assert not codes


async def test_retries_end_at_the_timeout_and_at_other_errors(peer: ScriptedPeer) -> None:
    def refused(code: ErrorCode) -> Any:
        topic = CreatableTopicResult(name="t", error_code=code, error_message="because")
        return lambda request, version: CreateTopicsResponse(topics=[topic])

    peer.on(ApiKey.CREATE_TOPICS, refused(ErrorCode.NOT_CONTROLLER))
    async with cluster_of(peer, clock=Leaps()) as cluster:
        with pytest.raises(ApiError, match="because") as caught:
            await admin.create_topic(cluster, "t")
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert [key for key, _, _ in peer.asked].count(ApiKey.CREATE_TOPICS) == 4
        peer.asked.clear()
        peer.on(ApiKey.CREATE_TOPICS, refused(ErrorCode.TOPIC_ALREADY_EXISTS))
        with pytest.raises(ApiError):
            await admin.create_topic(cluster, "t")
        assert len(peer.asked) == 1


async def test_offsets_are_requested_from_each_leader(peer: ScriptedPeer, second_peer: ScriptedPeer) -> None:
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=index % 2) for index in range(4)]
    topic = MetadataResponseTopic(name="t", partitions=partitions)
    peer.on(ApiKey.METADATA, metadata(peer, second_peer, topics=[topic]))

    def offsets(base: int) -> Any:
        def answer(request: Any, version: int) -> Any:
            asked = [partition.partition_index for partition in request.topics[0].partitions]
            found = [ListOffsetsPartitionResponse(partition_index=index, offset=base + index) for index in asked]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])

        return answer

    peer.on(ApiKey.LIST_OFFSETS, offsets(0))
    second_peer.on(ApiKey.LIST_OFFSETS, offsets(100))
    async with cluster_of(peer) as cluster:
        found = await groups.list_offsets(cluster, {("t", index): groups.LATEST for index in range(4)})
        assert found == {("t", 0): 0, ("t", 1): 101, ("t", 2): 2, ("t", 3): 103}
        with pytest.raises(ApiError, match="topic t has no partition 9"):
            await groups.list_offsets(cluster, {("t", 9): groups.EARLIEST})


async def test_the_coordinator_is_looked_for_again_while_it_moves(
    peer: ScriptedPeer, second_peer: ScriptedPeer
) -> None:
    def coordinator(request: Any, version: int) -> Any:
        where = second_peer if len([1 for key, _, _ in peer.asked if key is ApiKey.FIND_COORDINATOR]) > 1 else peer
        node = 1 if where is second_peer else 0
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=node, host="127.0.0.1", port=where.port)]
        )

    def committed(code: ErrorCode) -> Any:
        partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=42)
        unset = OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1)
        topic = OffsetFetchResponseTopics(name="t", partitions=[partition, unset])
        return lambda request, version: OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", error_code=code, topics=[] if code else [topic])]
        )

    peer.on(ApiKey.FIND_COORDINATOR, coordinator)
    peer.on(ApiKey.OFFSET_FETCH, committed(ErrorCode.NOT_COORDINATOR))
    second_peer.on(ApiKey.OFFSET_FETCH, committed(ErrorCode.NONE))
    async with cluster_of(peer) as cluster:
        found = await groups.committed_offsets(cluster, "g")
    assert found == {("t", 0): groups.CommittedOffset(42)}
    # Version 10 names topics by id.
    assert {version for key, version, _ in second_peer.asked if key is ApiKey.OFFSET_FETCH} == {9}


def test_assignments_of_the_classic_protocol() -> None:
    assigned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[0, 2])])
    for version in range(4):
        data = version.to_bytes(2, "big") + encode(assigned, version)
        assert groups.decode_assignment(data) == [("t", 0), ("t", 2)]
    future = (9).to_bytes(2, "big") + encode(assigned, 3) + b"new fields"
    assert groups.decode_assignment(future) == [("t", 0), ("t", 2)]
    for unreadable in (b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\5", encode(assigned, 0)):
        assert groups.decode_assignment(unreadable) == []
    assert groups.decode_subscription(b"\0\0\0\0\0\1\0\3abc\xff\xff\xff\xff") == ["abc"]
    assert groups.decode_subscription(b"\0\0\0\0\0\1\0\3ab") == []


async def test_transactions_are_looked_for_where_partitions_have_a_leader(peer: ScriptedPeer) -> None:
    """One partition without a leader does not hide what hangs in the others; the caller learns which it is."""
    parts = [
        MetadataResponsePartition(partition_index=index, leader_id=leader) for index, leader in enumerate((0, -1, 0))
    ]
    peer.on(ApiKey.METADATA, metadata(peer, topics=[MetadataResponseTopic(name="t", partitions=parts)]))

    def describe(request: Any, version: int) -> Any:
        hanging = ProducerState(producer_id=7, last_timestamp=0, current_txn_start_offset=3)
        asked = request.topics[0].partition_indexes
        found = [PartitionResponse(partition_index=each, active_producers=[hanging]) for each in asked]
        return DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=found)])

    peer.on(ApiKey.DESCRIBE_PRODUCERS, describe)
    peer.on(ApiKey.LIST_TRANSACTIONS, lambda request, version: ListTransactionsResponse())
    async with cluster_of(peer) as cluster:
        every = [("t", index) for index in range(3)]
        missed: list[tuple[str, int]] = []
        found = await transactions.find_hanging(
            cluster, every, now_ms=10_000_000, max_timeout_ms=1000, without_leader=missed
        )
        assert [each.partition_id for each in found] == [0, 2]
        assert missed == [("t", 1)]
        assert len(await transactions.find_hanging(cluster, every, now_ms=10_000_000, max_timeout_ms=1000)) == 2
        with pytest.raises(ApiError, match="t-1 has no leader") as caught:
            await transactions.open_transactions(cluster, [("t", 1)])
        assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
