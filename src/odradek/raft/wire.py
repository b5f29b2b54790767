"""Conversion between the node's values and Kafka's messages: requests to other replicas, and their answers.

All requests have one topic and one partition. An answer with another is the peer's fault: ProtocolError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from odradek.common.errors import ErrorCode, ProtocolError
from odradek.common.topic_names import METADATA_TOPIC
from odradek.protocol.declare import Message
from odradek.protocol.messages import begin_quorum_epoch_request as begin_request
from odradek.protocol.messages import end_quorum_epoch_request as end_request
from odradek.protocol.messages import fetch_request, fetch_snapshot_request, vote_request
from odradek.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from odradek.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.fetch_snapshot_response import FetchSnapshotResponse
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.raft.messages import EpochBegun, EpochEnded, LogEnd, VoteRequested
from odradek.raft.quorum_state import NO_NODE
from odradek.raft.snapshot import SnapshotId
from odradek.raft.storage import Diverging
from odradek.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

METADATA_TOPIC_ID = UUID(int=1)
# The first version with pre-votes (KIP-996); the first Fetch version with the replica's state (KIP-903).
PRE_VOTE_VERSION = 2
FETCH_VERSION = 15


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The quorum's state in an answer; `endpoints` by node id, of the one listener that this node uses."""

    error: int
    leader_id: int
    leader_epoch: int
    endpoints: Mapping[int, Endpoint]


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The leader's answer to a Fetch, without its quorum state."""

    leader_info: LeaderInfo
    high_watermark: int
    diverging: Diverging | None
    snapshot_id: SnapshotId | None
    records: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a snapshot of `size` bytes."""

    leader_info: LeaderInfo
    snapshot_id: SnapshotId
    size: int
    position: int
    data: bytes


def vote(request: VoteRequested, cluster_id: str, voter: Voter) -> vote_request.VoteRequest:
    """Build a Vote request."""
    partition = vote_request.PartitionData(
        partition_index=0,
        replica_epoch=request.leader_epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.key.directory_id,
        last_offset_epoch=request.log_end.last_epoch,
        last_offset=request.log_end.end_offset,
        pre_vote=request.pre_vote,
    )
    topic = vote_request.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote_request.VoteRequest(cluster_id=cluster_id, voter_id=voter.key.node_id, topics=[topic])


def begin_quorum_epoch(
    begun: EpochBegun, cluster_id: str, voter: Voter, endpoints: Mapping[str, Endpoint]
) -> begin_request.BeginQuorumEpochRequest:
    """Build a BeginQuorumEpoch request with the leader and its endpoints."""
    partition = begin_request.PartitionData(
        partition_index=0,
        voter_directory_id=voter.key.directory_id,
        leader_id=begun.leader_id,
        leader_epoch=begun.leader_epoch,
    )
    return begin_request.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.key.node_id,
        topics=[begin_request.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            begin_request.LeaderEndpoint(name=name, host=host, port=port) for name, (host, port) in endpoints.items()
        ],
    )


def end_quorum_epoch(
    ended: EpochEnded, cluster_id: str, voters: VoterSet, endpoints: Mapping[str, Endpoint]
) -> end_request.EndQuorumEpochRequest:
    """Build an EndQuorumEpoch request with the successors in their order."""
    known = [voter.key for node_id in ended.successors if (voter := voters.get(node_id)) is not None]
    partition = end_request.PartitionData(
        partition_index=0,
        leader_id=ended.leader_id,
        leader_epoch=ended.leader_epoch,
        preferred_successors=list(ended.successors),
        preferred_candidates=[
            end_request.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id) for key in known
        ],
    )
    return end_request.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end_request.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            end_request.LeaderEndpoint(name=name, host=host, port=port) for name, (host, port) in endpoints.items()
        ],
    )


def fetch(
    me: ReplicaKey,
    cluster_id: str,
    *,
    leader_epoch: int,
    log_end: LogEnd,
    log_start_offset: int,
    high_watermark: int,
    max_wait_ms: int,
    max_bytes: int,
) -> fetch_request.FetchRequest:
    """Build a Fetch request for the records behind the local log."""
    partition = fetch_request.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=log_end.end_offset,
        last_fetched_epoch=log_end.last_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=max_bytes,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return fetch_request.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_request.ReplicaState(replica_id=me.node_id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[fetch_request.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot(
    me: ReplicaKey, cluster_id: str, *, leader_epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> fetch_snapshot_request.FetchSnapshotRequest:
    """Build a FetchSnapshot request for the bytes from `position` on."""
    partition = fetch_snapshot_request.PartitionSnapshot(
        partition=0,
        current_leader_epoch=leader_epoch,
        snapshot_id=fetch_snapshot_request.SnapshotId(
            end_offset=snapshot_id.end_offset, epoch=snapshot_id.leader_epoch
        ),
        position=position,
        replica_directory_id=me.directory_id,
    )
    return fetch_snapshot_request.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=me.node_id,
        max_bytes=max_bytes,
        topics=[fetch_snapshot_request.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def read_response(answer: VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse) -> tuple[LeaderInfo, bool]:
    """Decode a voter's answer; returns the quorum's state, and whether the vote was granted."""
    endpoints = {node.node_id: (node.host, node.port) for node in answer.node_endpoints}
    if answer.error_code:
        return LeaderInfo(answer.error_code, NO_NODE, -1, endpoints), False
    partition: Any = _only_partition(answer, "topics")
    known = LeaderInfo(partition.error_code, partition.leader_id, partition.leader_epoch, endpoints)
    return known, not partition.error_code and bool(getattr(partition, "vote_granted", False))


def read_fetch_response(answer: FetchResponse) -> FetchResult:
    """Decode an answer to a Fetch, from the leader or a node that knows the leader."""
    endpoints = {node.node_id: (node.host, node.port) for node in answer.node_endpoints}
    if answer.error_code:
        return FetchResult(LeaderInfo(answer.error_code, NO_NODE, -1, endpoints), -1, None, None, b"")
    partition: Any = _only_partition(answer, "responses")
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    return FetchResult(
        LeaderInfo(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints),
        partition.high_watermark,
        Diverging(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
        bytes(partition.records or b""),
    )


def read_snapshot_chunk(answer: FetchSnapshotResponse) -> Chunk:
    """Decode the leader's answer to a FetchSnapshot."""
    endpoints = {node.node_id: (node.host, node.port) for node in answer.node_endpoints}
    if answer.error_code:
        return Chunk(LeaderInfo(answer.error_code, NO_NODE, -1, endpoints), SnapshotId(-1, -1), -1, -1, b"")
    partition: Any = _only_partition(answer, "topics")
    leader, snapshot = partition.current_leader, partition.snapshot_id
    known = LeaderInfo(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints)
    data = bytes(partition.unaligned_records or b"")
    return Chunk(known, SnapshotId(snapshot.end_offset, snapshot.epoch), partition.size, partition.position, data)


# The hint after CLUSTER_AUTHORIZATION_FAILED: another node does not recognize this one as part of the cluster.
CLUSTER_ACTION_HINT = "the principal of this node needs ClusterAction: name it in super.users of all nodes"


def error_name(code: int) -> str:
    """The name of an error code; its number if unknown."""
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def _only_partition(answer: Message, field: str) -> object:
    topics = cast("list[Any]", getattr(answer, field))
    partitions = [partition for topic in topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise ProtocolError(f"{type(answer).__name__} has {len(partitions)} partitions where one was asked for")
    return partitions[0]
