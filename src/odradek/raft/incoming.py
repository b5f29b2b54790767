"""Answers of a replica to the others: votes, begin and end of an epoch, Fetch, FetchSnapshot, DescribeQuorum.

A request is validated before any state changes: cluster, topic, receiver, offsets and epochs. State changes are in the
returned `Ready`, which the driver carries out before it sends the answer. Source: KIP-595, 630, 836, 853, 996.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT64_MAX
from odradek.common.topic_names import METADATA_TOPIC
from odradek.protocol.messages import begin_quorum_epoch_response as begin_response
from odradek.protocol.messages import describe_quorum_response as quorum_response
from odradek.protocol.messages import end_quorum_epoch_response as end_response
from odradek.protocol.messages import fetch_response, fetch_snapshot_response, vote_response
from odradek.protocol.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from odradek.protocol.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest
from odradek.protocol.messages.fetch_snapshot_request import FetchSnapshotRequest, PartitionSnapshot
from odradek.protocol.messages.vote_request import PartitionData as VotePartition
from odradek.protocol.messages.vote_request import VoteRequest
from odradek.raft.messages import EpochBegun, EpochEnded, Fetched, LogEnd, Ready, VoteAnswered, VoteRequested
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import NO_NODE
from odradek.raft.roles import Role
from odradek.raft.snapshot import SnapshotId
from odradek.raft.storage import Diverging, QuorumStorage
from odradek.raft.voters import ZERO_DIRECTORY, Leader, ReplicaKey
from odradek.raft.wire import METADATA_TOPIC_ID

# The limit of an answer to a Fetch whose `max_bytes` is larger or missing.
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_UNKNOWN_HIGH_WATERMARK = INT64_MAX


class IncomingRequests:
    """Handles the requests of other replicas."""

    def __init__(
        self, storage: QuorumStorage, node: RaftNode, cluster_id: str, leader: Callable[[], Leader | None]
    ) -> None:
        """`leader` returns the leader that this node knows."""
        self._storage = storage
        self._node = node
        self._cluster_id = cluster_id
        self._leader = leader

    # -- elections --------------------------------------------------------------------------------------------------

    def vote(self, request: VoteRequest, now_ms: int) -> tuple[Ready, vote_response.VoteResponse]:
        """Grant or deny a vote."""
        ready, granted = Ready(), False
        try:
            self._check_cluster(request.cluster_id)
            partition: VotePartition = _only(request.topics, "topic_name")
        except ApiError as error:
            return ready, vote_response.VoteResponse(error_code=error.code)
        code = self._check_vote(request, partition)
        if code is ErrorCode.NONE:
            requested = VoteRequested(
                ReplicaKey(partition.replica_id, partition.replica_directory_id),
                partition.replica_epoch,
                LogEnd(partition.last_offset_epoch, partition.last_offset),
                partition.pre_vote,
            )
            ready = self._node.step(requested, now_ms)
            granted = any(isinstance(sent, VoteAnswered) and sent.granted for _, sent in ready.messages)
        leader_id, leader_epoch = self._leader_hint()
        answer = vote_response.PartitionData(
            partition_index=0,
            error_code=code,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            vote_granted=granted,
        )
        topic = vote_response.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])
        return ready, vote_response.VoteResponse(topics=[topic], node_endpoints=self._endpoints(vote_response))

    def _check_vote(self, request: VoteRequest, requested: VotePartition) -> ErrorCode:
        node = self._node
        newest_epoch = requested.replica_epoch if requested.pre_vote else requested.replica_epoch - 1
        if min(requested.replica_epoch, requested.replica_id, requested.last_offset_epoch, requested.last_offset) < 0:
            return ErrorCode.INVALID_REQUEST
        if requested.last_offset_epoch > newest_epoch or requested.replica_id == node.me.node_id:
            return ErrorCode.INVALID_REQUEST
        if not self._is_me(request.voter_id, requested.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY
        if requested.replica_epoch < node.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return self._check_static(requested.replica_id)

    def _check_static(self, voter_id: int) -> ErrorCode:
        """In a static quorum all nodes know the voters. In a dynamic one a node may lack the newest voter set."""
        if self._storage.history.kraft_version > 0:
            return ErrorCode.NONE
        node = self._node
        known = voter_id in node.voters.node_ids and node.is_voter
        return ErrorCode.NONE if known else ErrorCode.INCONSISTENT_VOTER_SET

    def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest, now_ms: int
    ) -> tuple[Ready, begin_response.BeginQuorumEpochResponse]:
        """Handle BeginQuorumEpoch of a new leader."""
        ready = Ready()
        try:
            self._check_cluster(request.cluster_id)
            begun: Any = _only(request.topics, "topic_name")
        except ApiError as error:
            return ready, begin_response.BeginQuorumEpochResponse(error_code=error.code)
        code = self._check_claim(begun.leader_id, begun.leader_epoch)
        if not self._is_me(request.voter_id, begun.voter_directory_id):
            code = ErrorCode.INVALID_VOTER_KEY
        if code is ErrorCode.NONE:
            ready = self._node.step(EpochBegun(begun.leader_id, begun.leader_epoch), now_ms)
        leader_id, leader_epoch = self._leader_hint()
        answer = begin_response.PartitionData(
            partition_index=0, error_code=code, leader_id=leader_id, leader_epoch=leader_epoch
        )
        topic = begin_response.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])
        endpoints = self._endpoints(begin_response)
        return ready, begin_response.BeginQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)

    def end_quorum_epoch(
        self, request: EndQuorumEpochRequest, now_ms: int
    ) -> tuple[Ready, end_response.EndQuorumEpochResponse]:
        """Handle EndQuorumEpoch of a leader that resigned."""
        ready = Ready()
        try:
            self._check_cluster(request.cluster_id)
            ended: Any = _only(request.topics, "topic_name")
        except ApiError as error:
            return ready, end_response.EndQuorumEpochResponse(error_code=error.code)
        code = self._check_claim(ended.leader_id, ended.leader_epoch)
        if code is ErrorCode.NONE:
            successors = [candidate.candidate_id for candidate in ended.preferred_candidates]
            successors = successors or ended.preferred_successors
            ready = self._node.step(EpochEnded(ended.leader_id, ended.leader_epoch, tuple(successors)), now_ms)
        leader_id, leader_epoch = self._leader_hint()
        answer = end_response.PartitionData(
            partition_index=0, error_code=code, leader_id=leader_id, leader_epoch=leader_epoch
        )
        topic = end_response.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])
        endpoints = self._endpoints(end_response)
        return ready, end_response.EndQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)

    def _check_claim(self, leader_id: int, leader_epoch: int) -> ErrorCode:
        """Check the leader and epoch of a request against this node's; NONE if it may be that epoch's leader."""
        node = self._node
        if leader_id < 0 or leader_epoch < 0 or leader_id == node.me.node_id:
            return ErrorCode.INVALID_REQUEST
        if leader_epoch < node.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_epoch == node.leader_epoch and node.leader_id not in (NO_NODE, leader_id):
            return ErrorCode.INVALID_REQUEST
        return self._check_static(leader_id)

    # -- replication ------------------------------------------------------------------------------------------------

    def fetched(self, request: FetchRequest, now_ms: int) -> None:
        """Record the fetch position of a replica; does nothing if the request is refused."""
        if self._refusal(request) is not None:
            return
        requested: FetchPartition = _only_fetch(request)
        if self._storage.check_fetch(requested.fetch_offset, requested.last_fetched_epoch) is None:
            key = ReplicaKey(_replica_id(request), requested.replica_directory_id)
            self._node.step(Fetched(key, requested.current_leader_epoch, requested.fetch_offset), now_ms)

    def fetch(self, request: FetchRequest) -> tuple[fetch_response.FetchResponse, bool]:
        """Answer a Fetch from the present log; returns the answer, and whether it is empty and may wait for news."""
        refusal = self._refusal(request)
        if isinstance(refusal, fetch_response.FetchResponse):
            return refusal, False
        if refusal is not None:
            return self._fetch_answer(request, fetch_response.PartitionData(error_code=refusal)), False
        requested: FetchPartition = _only_fetch(request)
        node, log = self._node, self._storage.log
        answer = fetch_response.PartitionData(
            high_watermark=node.high_watermark, log_start_offset=log.log_start_offset, records=b""
        )
        obstacle = self._storage.check_fetch(requested.fetch_offset, requested.last_fetched_epoch)
        if isinstance(obstacle, Diverging):
            answer.diverging_epoch = fetch_response.EpochEndOffset(epoch=obstacle.epoch, end_offset=obstacle.end_offset)
        elif isinstance(obstacle, SnapshotId):
            answer.snapshot_id = fetch_response.SnapshotId(end_offset=obstacle.end_offset, epoch=obstacle.leader_epoch)
        elif requested.fetch_offset < log.log_end_offset:
            bound = min(request.max_bytes, requested.partition_max_bytes, MAX_ANSWER_BYTES)
            answer.records = log.read(requested.fetch_offset, bound)
        behind = requested.high_watermark != _UNKNOWN_HIGH_WATERMARK and requested.high_watermark < node.high_watermark
        idle = obstacle is None and not answer.records and not behind
        return self._fetch_answer(request, answer), idle

    def _refusal(self, request: FetchRequest) -> fetch_response.FetchResponse | ErrorCode | None:
        """The reason not to serve a Fetch: a response for the whole request, an error for its partition, or None."""
        try:
            self._check_cluster(request.cluster_id)
            requested = _only_fetch(request)
        except ApiError as error:
            return fetch_response.FetchResponse(error_code=error.code)
        if min(requested.fetch_offset, requested.last_fetched_epoch, requested.current_leader_epoch) < 0:
            return ErrorCode.INVALID_REQUEST
        if _replica_id(request) < 0 or request.max_wait_ms < 0:
            return ErrorCode.INVALID_REQUEST
        code = self._check_leads(requested.current_leader_epoch)
        if code is ErrorCode.NONE and self._is_own_key(_replica_id(request), requested.replica_directory_id):
            return ErrorCode.INVALID_REQUEST  # only this node knows how far its own log is durable
        return None if code is ErrorCode.NONE else code

    def _fetch_answer(
        self, request: FetchRequest, partition: fetch_response.PartitionData
    ) -> fetch_response.FetchResponse:
        leader_id, leader_epoch = self._leader_hint()
        partition.current_leader = fetch_response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        partition.records = partition.records or b""
        topic = request.topics[0]
        answer = fetch_response.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=[partition]
        )
        leader = self._leader()
        nodes = []
        if leader is not None and leader.endpoint is not None:
            host, port = leader.endpoint
            nodes = [fetch_response.NodeEndpoint(node_id=leader.node_id, host=host, port=port)]
        return fetch_response.FetchResponse(responses=[answer], node_endpoints=nodes)

    def fetch_snapshot(
        self, request: FetchSnapshotRequest, now_ms: int
    ) -> fetch_snapshot_response.FetchSnapshotResponse:
        """Answer FetchSnapshot with a chunk of a snapshot file."""
        try:
            self._check_cluster(request.cluster_id)
            requested: PartitionSnapshot = _only(request.topics, "name")
        except ApiError as error:
            return fetch_snapshot_response.FetchSnapshotResponse(error_code=error.code)
        leader_id, leader_epoch = self._leader_hint()
        answer = fetch_snapshot_response.PartitionSnapshot(
            index=0,
            snapshot_id=fetch_snapshot_response.SnapshotId(
                end_offset=requested.snapshot_id.end_offset, epoch=requested.snapshot_id.epoch
            ),
            current_leader=fetch_snapshot_response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
            unaligned_records=b"",
        )
        snapshot_id = SnapshotId(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
        code = self._check_leads(requested.current_leader_epoch)
        if code is ErrorCode.NONE and snapshot_id not in self._storage.snapshots:
            code = ErrorCode.SNAPSHOT_NOT_FOUND
        if code is ErrorCode.NONE:
            bound = max(1, min(request.max_bytes, MAX_ANSWER_BYTES))
            size, data = self._storage.read_snapshot_piece(snapshot_id, requested.position, bound)
            if not 0 <= requested.position < size:
                code = ErrorCode.POSITION_OUT_OF_RANGE
            else:
                answer.size, answer.position, answer.unaligned_records = size, requested.position, data
                self._node.replica_contacted(ReplicaKey(request.replica_id, requested.replica_directory_id), now_ms)
        answer.error_code = code
        topic = fetch_snapshot_response.TopicSnapshot(name=METADATA_TOPIC, partitions=[answer])
        endpoints = self._endpoints(fetch_snapshot_response)
        return fetch_snapshot_response.FetchSnapshotResponse(topics=[topic], node_endpoints=endpoints)

    # -- description ------------------------------------------------------------------------------------------------

    def describe(self, wall_ms: int, now_ms: int) -> quorum_response.DescribeQuorumResponse:
        """Answer DescribeQuorum as the leader (KIP-595, 836, 853)."""
        node = self._node
        voters: list[quorum_response.ReplicaState] = []
        observers: list[quorum_response.ReplicaState] = []
        for key, known in sorted(node.replicas.items()):
            voter = node.voters.get(key.node_id) if node.voters.is_voter(key) else None
            state = quorum_response.ReplicaState(
                replica_id=key.node_id,
                replica_directory_id=(voter.key if voter is not None else key).directory_id,
            )
            if key == node.me:
                state.log_end_offset = self._storage.log.log_end_offset
                state.last_fetch_timestamp = state.last_caught_up_timestamp = wall_ms
            else:
                state.log_end_offset = known.end_offset
                state.last_fetch_timestamp = _wall(known.last_fetch_ms, wall_ms, now_ms)
                state.last_caught_up_timestamp = _wall(known.last_caught_up_ms, wall_ms, now_ms)
            (voters if voter is not None else observers).append(state)
        partition = quorum_response.PartitionData(
            partition_index=0,
            error_message=None,
            leader_id=node.leader_id,
            leader_epoch=node.leader_epoch,
            high_watermark=node.high_watermark,
            current_voters=voters,
            observers=observers,
        )
        nodes = [
            quorum_response.Node(
                node_id=voter.key.node_id,
                listeners=[
                    quorum_response.Listener(name=name, host=host, port=port)
                    for name, (host, port) in voter.endpoints.items()
                ],
            )
            for voter in node.voters
        ]
        topic = quorum_response.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return quorum_response.DescribeQuorumResponse(error_message=None, topics=[topic], nodes=nodes)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _check_cluster(self, cluster_id: str | None) -> None:
        if cluster_id is not None and cluster_id != self._cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)

    def _check_leads(self, leader_epoch: int) -> ErrorCode:
        node = self._node
        if leader_epoch < node.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_epoch > node.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if node.role is Role.LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _is_me(self, voter_id: int, directory_id: UUID) -> bool:
        """Whether a request is addressed to this node; older versions have no receiver."""
        return voter_id == NO_NODE or self._is_own_key(voter_id, directory_id)

    def _is_own_key(self, node_id: int, directory_id: UUID) -> bool:
        return self._node.me.is_same(ReplicaKey(node_id, directory_id or ZERO_DIRECTORY))

    def _leader_hint(self) -> tuple[int, int]:
        leader = self._leader()
        return (NO_NODE if leader is None else leader.node_id), self._node.leader_epoch

    def _endpoints(self, messages: Any) -> list[Any]:
        leader = self._leader()
        if leader is None or leader.endpoint is None:
            return []
        host, port = leader.endpoint
        return [messages.NodeEndpoint(node_id=leader.node_id, host=host, port=port)]


def _replica_id(request: FetchRequest) -> int:
    return request.replica_state.replica_id if request.replica_id < 0 else request.replica_id


def _only(topics: Sequence[Any], name_field: str) -> Any:
    """Return the only partition of a request. Raises ApiError INVALID_REQUEST."""
    if len(topics) == 1 and getattr(topics[0], name_field) == METADATA_TOPIC and len(topics[0].partitions) == 1:
        partition = topics[0].partitions[0]
        if getattr(partition, "partition_index", getattr(partition, "partition", 0)) == 0:
            return partition
    raise ApiError(ErrorCode.INVALID_REQUEST)


def _only_fetch(request: FetchRequest) -> FetchPartition:
    """Return the only partition of a Fetch. Raises ApiError INVALID_REQUEST."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        topic, partition = request.topics[0], request.topics[0].partitions[0]
        is_metadata = topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
        if is_metadata and partition.partition == 0:
            return partition
    raise ApiError(ErrorCode.INVALID_REQUEST)


def _wall(then_ms: int, wall_ms: int, now_ms: int) -> int:
    """Convert a monotonic time to wall-clock ms; -1 stays -1."""
    return -1 if then_ms < 0 else wall_ms - (now_ms - then_ms)
