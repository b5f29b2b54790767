"""Requests that no replica of this quorum would send: the right error, and nothing is changed by any of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.client.connection import UnreachableError
from odradek.common.errors import ErrorCode
from odradek.protocol.messages import begin_quorum_epoch_request as begin
from odradek.protocol.messages import end_quorum_epoch_request as end
from odradek.protocol.messages import fetch_request as fetch
from odradek.protocol.messages import fetch_snapshot_request as snapshots
from odradek.protocol.messages import vote_request as votes
from odradek.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from odradek.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.fetch_snapshot_response import FetchSnapshotResponse
from odradek.protocol.messages.vote_response import VoteResponse
from tests.support.models.controller_harness import CLUSTER
from tests.support.nodes.quorum_replicas import Quorum, Replica
from tests.support.waiting import PATIENCE_S, eventually_async

METADATA = "__cluster_metadata"
METADATA_ID = UUID(int=1)


async def send_to(replica: Replica, request: Any, response: Any, version: int | None = None) -> Any:
    connection = await replica.client()
    try:
        return await connection.request(request, response, timeout_s=PATIENCE_S, version=version)
    finally:
        connection.close()


def state_of(replica: Replica) -> tuple[Any, ...]:
    """The state that an election or a Fetch could change, and the bytes of quorum-state."""
    node = replica.driver.node
    stored = (replica.directory / "quorum-state").read_bytes()
    return node.state, node.role, node.high_watermark, replica.driver.end_offset, tuple(node.replicas), stored


def vote(epoch: int, candidate: int = 2, cluster_id: str | None = CLUSTER, **changes: Any) -> votes.VoteRequest:
    fields = {
        "replica_epoch": epoch, "replica_id": candidate, "replica_directory_id": UUID(int=candidate),
        "last_offset_epoch": 0, "last_offset": 0, **changes,
    }  # fmt: skip
    voter_id = fields.pop("voter_id", -1)
    topic = votes.TopicData(topic_name=METADATA, partitions=[votes.PartitionData(partition_index=0, **fields)])
    return votes.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[topic])


def fetched(epoch: int, offset: int, replica_id: int = 2, **changes: Any) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1000,
        last_fetched_epoch=changes.pop("last_fetched_epoch", 0),
        replica_directory_id=changes.pop("directory", UUID(int=abs(replica_id))),
    )  # fmt: skip
    topic = fetch.FetchTopic(topic_id=changes.pop("topic_id", METADATA_ID), partitions=[partition])
    state = fetch.ReplicaState(replica_id=replica_id, replica_epoch=-1)
    fields = {"cluster_id": CLUSTER, "replica_state": state, "max_wait_ms": 0, "topics": [topic], **changes}
    return fetch.FetchRequest(min_bytes=0, **fields)


async def test_votes_that_must_not_be_given(tmp_path: Path) -> None:
    async with Quorum(tmp_path, election_timeout_ms=60_000, fetch_timeout_ms=60_000) as quorum:
        # No voter is a candidate: the timeouts are long, so that only the requests can change anything.
        voter = quorum.replicas[1]
        before = state_of_unattached(voter)
        for request, code in (
            (vote(5, cluster_id="another"), None),
            (vote(5, 9), ErrorCode.INCONSISTENT_VOTER_SET),
            (vote(5, 1), ErrorCode.INVALID_REQUEST),
            (vote(5, 2, voter_id=3), ErrorCode.INVALID_VOTER_KEY),
            (vote(5, 2, voter_id=1, voter_directory_id=UUID(int=77)), ErrorCode.INVALID_VOTER_KEY),
            (vote(-1), ErrorCode.INVALID_REQUEST),
            (vote(5, last_offset=-1), ErrorCode.INVALID_REQUEST),
            (vote(5, last_offset_epoch=5), ErrorCode.INVALID_REQUEST),
        ):
            answer = await send_to(voter, request, VoteResponse)
            if code is None:
                assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID and not answer.topics
            else:
                partition = answer.topics[0].partitions[0]
                assert (partition.error_code, partition.vote_granted) == (code, False), request
            assert state_of_unattached(voter) == before
        wrong = vote(5)
        wrong.topics[0].topic_name = "t"
        assert (await send_to(voter, wrong, VoteResponse)).error_code == ErrorCode.INVALID_REQUEST
        assert state_of_unattached(voter) == before
        # A valid vote request is granted, once, and the vote is in the file before the answer.
        answer = await send_to(voter, vote(5), VoteResponse, version=0)
        assert answer.topics[0].partitions[0].vote_granted
        assert b'"votedId":2' in (voter.directory / "quorum-state").read_bytes()
        answer = await send_to(voter, vote(5, 3), VoteResponse)
        assert not answer.topics[0].partitions[0].vote_granted
        answer = await send_to(voter, vote(4, 3), VoteResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def state_of_unattached(replica: Replica) -> tuple[Any, ...]:
    return replica.driver.node.state, replica.driver.node.role, (replica.directory / "quorum-state").exists()


async def test_fetches_that_must_not_count(tmp_path: Path) -> None:
    async with Quorum(tmp_path, count=1) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        epoch, end_offset = leader.driver.leader_epoch, leader.driver.end_offset
        before = state_of(leader)
        for request, code in (
            (fetched(epoch - 1, 0), ErrorCode.FENCED_LEADER_EPOCH),
            (fetched(epoch + 1, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (fetched(epoch, -1), ErrorCode.INVALID_REQUEST),
            (fetched(epoch, 0, replica_id=-1), ErrorCode.INVALID_REQUEST),
            (fetched(epoch, 0, replica_id=1), ErrorCode.INVALID_REQUEST),
            (fetched(epoch, 0, max_wait_ms=-1), ErrorCode.INVALID_REQUEST),
        ):
            partition = (await send_to(leader, request, FetchResponse)).responses[0].partitions[0]
            assert partition.error_code == code and not partition.records, request
            assert partition.current_leader.leader_id == 1 and partition.current_leader.leader_epoch == epoch
            assert state_of(leader) == before
        for request, code in (
            (fetched(epoch, 0, cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (fetched(epoch, 0, topic_id=UUID(int=2)), ErrorCode.INVALID_REQUEST),
            (fetched(epoch, 0, topics=[]), ErrorCode.INVALID_REQUEST),
        ):
            assert (await send_to(leader, request, FetchResponse)).error_code == code
            assert state_of(leader) == before
        # Offsets beyond the end, or of unknown epochs: answered with where the logs diverge, not counted as a position.
        beyond = fetched(epoch, end_offset + 1000, last_fetched_epoch=epoch)
        partition = (await send_to(leader, beyond, FetchResponse)).responses[0].partitions[0]
        assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (epoch, end_offset)
        assert state_of(leader) == before
        # An observer is served and described; it counts for nothing.
        answer = await send_to(leader, fetched(epoch, 0), FetchResponse)
        assert answer.responses[0].partitions[0].records
        assert leader.driver.node.high_watermark == before[2]
        observers = leader.driver.describe().topics[0].partitions[0].observers
        assert [each.replica_id for each in observers] == [2]


async def test_leaders_that_are_none(tmp_path: Path) -> None:
    async with Quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        follower = next(replica for replica in quorum.running if replica is not leader)
        other = next(r.key.node_id for r in quorum.running if r not in (leader, follower))
        epoch = follower.driver.leader_epoch
        before = follower.driver.node.state
        for leader_id, leader_epoch, cluster_id, code in (
            (other, epoch, CLUSTER, ErrorCode.INVALID_REQUEST),
            (other, epoch - 1, CLUSTER, ErrorCode.FENCED_LEADER_EPOCH),
            (9, epoch + 1, CLUSTER, ErrorCode.INCONSISTENT_VOTER_SET),
            (-1, epoch + 1, CLUSTER, ErrorCode.INVALID_REQUEST),
            (other, epoch + 1, "another", None),
        ):
            begun = begin.PartitionData(partition_index=0, leader_id=leader_id, leader_epoch=leader_epoch)
            topic: Any = begin.TopicData(topic_name=METADATA, partitions=[begun])
            liar = begin.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=1)
            request: Any = begin.BeginQuorumEpochRequest(cluster_id=cluster_id, topics=[topic], leader_endpoints=[liar])
            began = await send_to(follower, request, BeginQuorumEpochResponse)
            ended_partition = end.PartitionData(partition_index=0, leader_id=leader_id, leader_epoch=leader_epoch)
            topic = end.TopicData(topic_name=METADATA, partitions=[ended_partition])
            request = end.EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic])
            ended = await send_to(follower, request, EndQuorumEpochResponse)
            if code is None:
                assert began.error_code == ended.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            else:
                assert [each.topics[0].partitions[0].error_code for each in (began, ended)] == [code, code]
            assert follower.driver.node.state == before
            assert follower.driver.leader() == leader.driver.leader()
        assert await leader.set("2") == 0
        await quorum.converged("2")


async def test_snapshots_that_are_not_there(tmp_path: Path) -> None:
    async with Quorum(tmp_path, count=1) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        snapshot_id = await leader.driver.write_snapshot()
        size = (leader.directory / snapshot_id.file_name).stat().st_size
        epoch = leader.driver.leader_epoch
        for end_offset, position, asked_epoch, cluster_id, code in (
            (snapshot_id.end_offset + 1, 0, epoch, CLUSTER, ErrorCode.SNAPSHOT_NOT_FOUND),
            (snapshot_id.end_offset, size, epoch, CLUSTER, ErrorCode.POSITION_OUT_OF_RANGE),
            (snapshot_id.end_offset, -1, epoch, CLUSTER, ErrorCode.POSITION_OUT_OF_RANGE),
            (snapshot_id.end_offset, 0, epoch - 1, CLUSTER, ErrorCode.FENCED_LEADER_EPOCH),
            (snapshot_id.end_offset, 0, epoch + 1, CLUSTER, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (snapshot_id.end_offset, 0, epoch, "another", None),
            (snapshot_id.end_offset, 0, epoch, CLUSTER, ErrorCode.NONE),
        ):
            wanted = snapshots.SnapshotId(end_offset=end_offset, epoch=snapshot_id.leader_epoch)
            piece = snapshots.PartitionSnapshot(
                partition=0, current_leader_epoch=asked_epoch, snapshot_id=wanted, position=position
            )
            topic = snapshots.TopicSnapshot(name=METADATA, partitions=[piece])
            request = snapshots.FetchSnapshotRequest(cluster_id=cluster_id, replica_id=2, max_bytes=10, topics=[topic])
            answer = await send_to(leader, request, FetchSnapshotResponse)
            if code is None:
                assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
                continue
            partition = answer.topics[0].partitions[0]
            assert partition.error_code == code
            data = bytes(partition.unaligned_records)
            assert (len(data), partition.size) == ((10, size) if code is ErrorCode.NONE else (0, 0))


async def test_a_frame_that_is_too_long_ends_its_connection_alone(tmp_path: Path) -> None:
    async with Quorum(tmp_path, count=1) as quorum:
        leader = await quorum.leader()
        connection = await leader.client()
        assert connection._transport is not None
        pending = connection.send(fetched(leader.driver.leader_epoch, leader.driver.end_offset, max_wait_ms=60_000))
        connection._transport.write((2**31 - 1).to_bytes(4, "big") + b"\0" * 100)
        with pytest.raises(UnreachableError):
            await pending
        assert await leader.set("1") == 0


async def test_a_node_of_another_cluster_gets_nothing(tmp_path: Path) -> None:
    async with Quorum(tmp_path, count=1) as quorum:
        leader = await quorum.leader()
        await leader.set("1")
        foreign = await quorum.observer(cluster_id="another")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await eventually_async(lambda: foreign.driver.end_offset > 0)
        assert foreign.driver.leader() is None and foreign.driver.end_offset == 0 and not foreign.failures


async def test_a_fetch_that_is_refused_does_not_wait_for_news(tmp_path: Path) -> None:
    async with Quorum(tmp_path, 1) as quorum:
        leader = await quorum.leader()
        epoch = leader.driver.leader_epoch
        for request in (
            fetched(epoch, 0, cluster_id="another"),
            fetched(epoch - 1, 0),
            fetched(epoch, 0, topic_id=UUID(int=9)),
        ):
            assert not leader.driver._incoming.fetch(request)[1]
        end = leader.driver.log.log_end_offset
        waits = fetched(epoch, end, last_fetched_epoch=epoch)
        assert leader.driver._incoming.fetch(waits)[1], "there is nothing new"
